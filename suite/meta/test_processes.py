"""Tasks start, are watched, hurt and ended: with fakes, in real processes and namespaces."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from reference_trainers import Trainer
from suite.harness import leaks, network
from suite.harness.engine import Engine, to_inherit
from suite.harness.errors import DeadlineExceeded, HarnessError, TrainerFailed, Unsupported
from suite.harness.process import ROOT, Zygote
from suite.harness.progress import Progress
from suite.harness.run import HARNESS_EVENTS, Run, read
from suite.harness.staging import give_time
from suite.harness.waiting import Deadlines, wait_until
from suite.meta import fakes

SAY = textwrap.dedent(
    """
    import json, os, signal, subprocess, sys, time
    def say(event, **data):
        with open(os.environ["TRAINER_EVENTS"], "a") as file:
            data.update(event=event, time_s=time.monotonic(), task=os.environ["TASK"],
                        attempt=int(os.environ["TRAINER_ATTEMPT"]))
            file.write(json.dumps(data) + "\\n")
    """
)


@pytest.fixture
def program(tmp_path):
    """`program(body)`: a trainer row whose program is this text, after `say`."""

    def write(body: str, jobs: tuple[tuple[str, int], ...] = ()) -> Trainer:
        path = tmp_path / f"program{len(list(tmp_path.iterdir()))}.py"
        path.write_text(SAY + textwrap.dedent(body))
        return fakes.bare(path, jobs)

    return write


@pytest.fixture(params=["fork", "exec"])
def engine(request, fake_engine, tmp_path):
    """Both ways of starting tasks, which must give the same results."""
    made = replace(fake_engine, spawn=request.param, zygotes={}, directory=tmp_path)
    yield made
    made.stop()


def launch(engine, trainer, **how):
    how = {"backend": "none", "keras": "none", "env": {"TASK": "worker/0"}, **how}
    return engine.launch(trainer, **how)


ENDS = [
    ("pass", 0, None),
    ("sys.exit(3)", 3, None),
    ("sys.exit('a message')", 1, None),
    ("raise ValueError('broken')", 1, None),
    ("os._exit(77)", 77, None),
    ("os.kill(os.getpid(), signal.SIGKILL)", None, 9),
    ("os.kill(os.getpid(), signal.SIGSEGV)", None, 11),
]


@pytest.mark.parametrize(("body", "code", "signum"), ENDS, ids=[row[0][:20] for row in ENDS])
def test_exit_codes_and_signals_are_reported(engine, program, body, code, signum):
    # Process 1 of a PID namespace would survive its own signals; a task must never be it.
    with launch(engine, program(body)) as cluster:
        cluster.start()
        run = cluster.finish()
    exited = run.exit_of("worker/0")
    assert (exited["code"], exited["signal"]) == (code, signum)


def test_a_start_is_over_when_the_history_has_it(engine, program):
    """Or it might tell of a task that has trained before it was started."""
    body = "signal.pause()"
    with launch(engine, program(body, (("worker", 3),))) as cluster:
        for attempt in range(2):
            cluster.start()
            spawned = cluster.run().of("spawned", attempt=attempt)
            assert {e.task for e in spawned} == set(cluster.tasks)
            for task in cluster.tasks:
                cluster.signal(task, signal.SIGKILL)
            cluster.wait_exit(*cluster.tasks)


def test_a_task_is_a_program_of_its_own(engine, program, monkeypatch):
    """Name, arguments, directory, environment and output are as under a shell."""
    monkeypatch.setenv("TF_CONFIG", "left over in the user's shell")
    engine = replace(engine, inherited=to_inherit())
    body = """
        print("on stdout"); print("on stderr", file=sys.stderr)
        say("told", name=__name__, argv=sys.argv[1:], group=os.getpgid(0) == os.getpid(),
            config=os.environ.get("TF_CONFIG"), path=sys.path[0], cwd=os.getcwd())
        """
    trainer = program(body)
    with launch(engine, trainer, flags={"epochs": 3, "evaluate": True, "export": None}) as cluster:
        cluster.start()
        run = cluster.complete()
    told = run.of("told")[0].data
    assert told["name"] == "__main__"
    assert told["argv"] == ["--epochs", "3", "--evaluate"]
    assert told["config"] is None
    assert told["path"] == str(Path(trainer.program).parent)
    assert told["cwd"] == str(run.directory)
    assert {"on stdout", "on stderr"} <= set(run.log("worker/0").splitlines())


def test_a_task_inherits_what_pytest_began_with(fake_engine, monkeypatch):
    """Not what tests set and remove while other threads play their scenarios."""
    monkeypatch.setenv("SET_LATER", "by a test")
    told = fake_engine.environment("none")
    assert "SET_LATER" not in told
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in told
    assert told["PATH"] == os.environ["PATH"]


def test_unseeded_numbers_differ_between_forked_tasks(fake_engine, program):
    body = """
        import random
        config = json.loads(os.environ["TF_CONFIG"])
        os.environ["TASK"] = "worker/%d" % config["task"]["index"]
        say("drew", number=random.random())
        """
    with launch(fake_engine, program(body, (("worker", 2),))) as cluster:
        cluster.start()
        run = cluster.complete()
    assert len({e["number"] for e in run.of("drew")}) == 2


def test_each_cluster_has_a_network_of_its_own(fake_engine, program):
    """Two clusters listen on the same port, and nobody outside reaches either."""
    body = """
        import socket
        server = socket.create_server(("127.0.0.1", 2222))
        say("listening")
        signal.pause()
        """
    assert fake_engine.network.kind == network.NAMESPACE, fake_engine.network.reason
    trainer = program(body)
    with launch(fake_engine, trainer) as first, launch(fake_engine, trainer) as second:
        first.start()
        second.start()
        first.wait_for("listening", "worker/0")
        second.wait_for("listening", "worker/0")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", 2222), timeout=1)


def test_clusters_run_on_leased_ports_where_there_are_no_namespaces(fake_engine, program, tmp_path):
    body = """
        import socket
        host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0].split(":")
        socket.create_server((host, int(port)))
        say("listening", port=int(port))
        signal.pause()
        """
    leased = network.Network(network.LEASED_PORTS, "for this test")
    engine = replace(fake_engine, network=leased, zygotes={}, directory=tmp_path)
    trainer = program(body, (("worker", 1),))
    with launch(engine, trainer) as first, launch(engine, trainer) as second:
        first.start()
        second.start()
        ports = {c.wait_for("listening", "worker/0")["port"] for c in (first, second)}
        pids = [first.pids["worker/0"], second.pids["worker/0"]]
    assert len(ports) == 2
    assert not any(map(psutil.pid_exists, pids))
    engine.stop()


@pytest.mark.parametrize("kind", [network.NAMESPACE, network.LEASED_PORTS])
def test_grandchildren_end_with_their_cluster(fake_engine, program, tmp_path, kind):
    body = """
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                 start_new_session=True)
        say("spawned_child", ns=os.readlink("/proc/self/ns/net"))
        signal.pause()
        """
    chosen = network.Network(kind, "for this test")
    name = f"grandchildren-{kind}-{os.getpid()}"
    engine = replace(fake_engine, network=chosen, zygotes={}, directory=tmp_path, session=name)
    with launch(engine, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("spawned_child")
        assert len(leaks.processes(name)) >= 3
    engine.stop()
    assert leaks.processes(name) == []


def test_waiting_for_what_cannot_come_says_why(fake_engine, program):
    with launch(fake_engine, program("raise ValueError('no')")) as cluster:
        cluster.start()
        with pytest.raises(TrainerFailed, match=r"ended before `step` \(exit 1\): ValueError: no"):
            cluster.wait_for("step")


def test_a_hang_is_diagnosed_with_stacks_logs_and_command(fake_engine, program):
    body = """
        def where_it_hangs():
            print("the last words")
            say("hanging")
            signal.pause()
        where_it_hangs()
        """
    with launch(fake_engine, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("hanging")
        with pytest.raises(DeadlineExceeded, match=r"`step`.*alive: worker/0") as caught:
            cluster.wait_for("step", within_s=0.1)
    text = caught.value.diagnosis
    for part in ("where_it_hangs", "the last words", "worker/0", "alive", "program", "hanging"):
        assert part in text


def test_exit_codes_decide_who_is_to_blame(fake_engine, program):
    def complete(body: str) -> None:
        with launch(fake_engine, program(body)) as cluster:
            cluster.start()
            cluster.complete()

    with pytest.raises(Unsupported, match=r"gone since 2.16"):
        complete("say('unsupported', reason='gone since 2.16'); sys.exit(77)")
    with pytest.raises(TrainerFailed):
        complete("sys.exit(77)")
    with pytest.raises(HarnessError, match="unknown flag"):
        complete("print('unknown flag'); sys.exit(2)")
    with pytest.raises(TrainerFailed, match="signal 9"):
        complete("os.kill(os.getpid(), signal.SIGKILL)")


def test_a_task_that_cannot_do_it_says_so_also_while_something_is_awaited(fake_engine, program):
    with launch(fake_engine, program("say('unsupported', reason='gone'); sys.exit(77)")) as cluster:
        cluster.start()
        with pytest.raises(Unsupported, match="gone"):
            cluster.wait_for("step")


def test_a_held_task_is_still_there_however_late_the_harness(fake_engine, program):
    """In its next life only, and until it is let go."""
    body = f"""
        sys.path.insert(0, {str(ROOT)!r})
        from reference_trainers.events import EventWriter
        writer = EventWriter()
        for step in range(1, 4):
            writer.write("step", step=step, global_step=step, loss=0.0, examples=1)
        """
    with launch(fake_engine, program(body)) as cluster:
        cluster.hold("worker/0", "step", 2)
        cluster.start()
        cluster.wait_for("step", where=lambda e: e["global_step"] == 2)
        give_time(cluster, 0.3, lambda run: len(run.of("step")) > 2)
        assert cluster.alive() == ["worker/0"]
        assert len(cluster.run().of("step")) == 2
        cluster.let_go("worker/0")
        run = cluster.finish()
        assert [e["step"] for e in run.of("step")] == [1, 2, 3]
        cluster.hold("worker/0", "step")
        cluster.start()
        cluster.wait_for("step", attempt=1)
        give_time(cluster, 0.3, lambda run: len(run.of("step", attempt=1)) > 1)
        assert len(cluster.run().of("step", attempt=1)) == 1
        cluster.signal("worker/0", signal.SIGKILL)
        cluster.wait_exit("worker/0")
        cluster.start()
        assert [e["step"] for e in cluster.finish().of("step", attempt=2)] == [1, 2, 3]


def test_a_signal_is_sent_when_the_call_is_over(fake_engine, program):
    body = """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        say("step")
        signal.pause()
        """
    with launch(fake_engine, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("step")
        status = Path(f"/proc/{cluster.pids['worker/0']}/status")
        cluster.signal("worker/0", signal.SIGUSR1)
        (pending,) = re.findall(r"ShdPnd:\s*(\w+)", status.read_text())
        assert int(pending, 16) == 1 << (signal.SIGUSR1 - 1)


def test_the_history_can_be_read_from_the_run_directory(fake_engine, program):
    """All of it and nothing twice, at any time: what comes next may end the session."""
    body = "say('fault_started', fault='planted'); signal.pause()"
    with launch(fake_engine, program(body), name="told") as cluster:
        cluster.start()
        cluster.wait_for("fault_started")
        cluster.signal("worker/0", signal.SIGSTOP, fault="sigstop")
        assert read(cluster.plan.events) == cluster.run().events
        cluster.signal("worker/0", signal.SIGCONT, healed="sigstop")
        cluster.end("worker/0")
    assert read(cluster.plan.events) == cluster.run().events
    lines = (cluster.plan.events / HARNESS_EVENTS).read_text().splitlines()
    own = [(e["event"], e["attempt"]) for e in map(json.loads, lines)]
    assert own == [(n, 0) for n in ("spawned", "fault_started", "fault_ended", "exited")]


def test_a_coordinator_ends_the_run_and_its_servers_with_it(fake_engine, program):
    body = """
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        os.environ["TASK"] = "{type}/{index}".format(**task)
        say("step")
        if task["type"] != "chief":
            signal.pause()
        """

    def complete(code: int) -> Run:
        trainer = program(
            f"{textwrap.dedent(body)}\nsys.exit({code})", (("chief", 1), ("ps", 1), ("worker", 1))
        )
        with launch(fake_engine, replace(trainer, services=("ps", "worker"))) as cluster:
            cluster.start()
            assert cluster.drivers == ("chief/0",)
            cluster.wait_for("step", "worker/0")
            return cluster.complete()

    exits = {e.task: e["ended_by_harness"] for e in complete(0).of("exited")}
    assert exits == {"chief/0": False, "ps/0": True, "worker/0": True}
    with pytest.raises(TrainerFailed, match="chief/0 failed"):
        complete(1)


def test_a_program_that_cannot_start_is_the_harness_to_blame(tmp_path, program):
    engine = Engine(
        python=str(tmp_path / "missing"),
        flavours={"none": {}},
        network=network.probe(),
        deadlines=Deadlines(),
        directory=tmp_path,
        progress=Progress(None),
        session="x",
        preload=(),
    )
    with pytest.raises(HarnessError, match="cannot start"), launch(engine, program("pass")):
        raise AssertionError("it was entered")


def test_the_control_socket_is_private(fake_engine):
    fake_engine.warm("none")
    zygote = fake_engine.zygotes["none"]
    zygote.wait_ready(fake_engine.deadlines)
    assert stat.S_IMODE(zygote.socket_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(zygote.directory.stat().st_mode) == 0o700


def test_a_zygote_that_cannot_import_says_so(tmp_path):
    log = tmp_path / "zygote.log"
    zygote = Zygote.start(sys.executable, os.environ, preload=["no_such_module"], log=log)
    with pytest.raises(HarnessError, match="did not import no_such_module"):
        zygote.wait_ready(Deadlines())
    zygote.stop(Deadlines())
    assert "No module named 'no_such_module'" in log.read_text()
    assert not zygote.directory.exists()


def test_killing_pytest_leaves_no_process_and_no_namespace(tmp_path):
    """SIGKILL, which nothing can catch, while a cluster runs."""
    ready = tmp_path / "ready"
    victim = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", str(ROOT / "suite" / "meta" / "victim.py")],
        env={**os.environ, "VICTIM_READY": str(ready), "VICTIM_SESSION": str(tmp_path)},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    told = wait_until("the victim's cluster", lambda: ready.exists() and ready.read_text(), 60)
    session, temporary = told.split()
    running = leaks.processes(session)
    victim.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    victim.wait()
    assert len(running) >= 5  # zygote, two for the cluster, its tasks
    wait_until("everything to end", lambda: not leaks.processes(session), 5)
    assert time.monotonic() - killed_s < 5
    assert not Path(temporary).exists()
    spaces = {line.split(" in ")[1].split(":")[0] for line in running}
    assert not spaces - {str(Path("/proc/self/ns/net").readlink())} & living_networks()


def living_networks() -> set[str]:
    """Network namespaces that some process still holds."""
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(str(Path(f"/proc/{process.pid}/ns/net").readlink()))
        except OSError:
            continue
    return found
