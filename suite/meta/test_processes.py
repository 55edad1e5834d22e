"""Tests that start, watch, fault and end tasks: fakes in real processes and namespaces."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import psutil
import pytest

from reference_trainers import Trainer
from suite.harness.cluster import addresses, leaks
from suite.harness.cluster.launcher import Engine, to_inherit
from suite.harness.cluster.zygote_client import SESSION_VARIABLE, Zygote
from suite.harness.core import paths
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import DeadlineExceeded, HarnessError, TrainerFailed, Unsupported
from suite.harness.core.history import HARNESS_EVENTS, Run, Tail, read
from suite.harness.core.paths import ROOT, TASK_SIDE
from suite.harness.pytest_plugin.progress import Progress
from suite.harness.scenarios.base import give_time
from suite.harness.tables import programs
from suite.meta import fakes
from suite.meta.calls import calls
from suite.meta.closed_ports import rules

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
    """Return `program(body)`, which makes a trainer row whose program is `body` after `say`."""

    def write(body: str, jobs: tuple[tuple[str, int], ...] = ()) -> Trainer:
        path = tmp_path / f"program{len(list(tmp_path.iterdir()))}.py"
        path.write_text(SAY + textwrap.dedent(body))
        return fakes.bare(path, jobs)

    return write


@pytest.fixture(params=["fork", "exec"])
def engine(request, fake_engine, tmp_path):
    """Yield an engine for each way of starting tasks. Both must give the same results."""
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
    # Process 1 of a PID namespace would survive its own signals, so a task must never be it.
    with launch(engine, program(body)) as cluster:
        cluster.start()
        run = cluster.finish()
    exited = run.exit_of("worker/0")
    assert (exited["code"], exited["signal"]) == (code, signum)


def test_files_of_a_task_get_the_umask_of_the_user(engine, program, tmp_path):
    python = tmp_path / "python-of-a-user-with-this-umask"
    python.write_text(f'#!/bin/sh\numask 027\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    made = tmp_path / "made"
    with launch(replace(engine, python=str(python)), program(f"open({str(made)!r}, 'w')")) as one:
        one.start()
        one.complete()
    assert stat.S_IMODE(made.stat().st_mode) == 0o640


def test_a_traceback_is_the_program_s_alone(engine, program):
    """The traceback has no frame of the code that forks tasks, just as with `python program`."""
    with launch(engine, program("def train():\n    raise ValueError('no')\ntrain()")) as cluster:
        cluster.start()
        run = cluster.finish()
    frames = re.findall(r'File "(.*)", line', run.log("worker/0"))
    assert frames == [run.trainer.program] * 2


SHOW_MODULE = """
    import os, sys
    from . import sibling
    print(sys.argv[1:], sys.orig_argv[1:3], __package__, __spec__.name, sibling.__name__)
    print(os.path.samefile(sys.path[0], os.getcwd()), sorted(set(globals()) - {"sibling", "sys"}))
"""


@pytest.mark.parametrize("observe", ["true", "false"])
def test_a_module_runs_as_by_python_m(engine, tmp_path, observe):
    """Its package is next to the TOML file, and the tasks run in another directory."""
    (tmp_path / "pkg").mkdir()
    for name, text in (("__init__", ""), ("sibling", ""), ("show", textwrap.dedent(SHOW_MODULE))):
        (tmp_path / "pkg" / f"{name}.py").write_text(text)
    toml = tmp_path / "described.toml"
    lines = ('module = "pkg.show"', 'args = ["--x", "{seed}"]', f"observe = {observe}")
    toml.write_text("\n".join(lines))
    row = replace(programs.read(toml).row, spawn="")  # as the engine starts tasks
    with launch(engine, row, directory=tmp_path, flags={"seed": 7}) as cluster:
        cluster.start()
        run = cluster.complete() if row.observed else cluster.finish()
    names = ["__annotations__", "__builtins__", "__cached__", "__doc__", "__file__", "__loader__"]
    names += ["__name__", "__package__", "__spec__", "os"]
    said = "['--x', '7'] ['-m', 'pkg.show'] pkg pkg.show pkg.sibling\n"
    assert run.exit_of("worker/0")["code"] == 0, run.log("worker/0")
    assert run.log("worker/0").startswith(said + "True "), run.log("worker/0")
    found = set(ast.literal_eval(run.log("worker/0").splitlines()[1].partition(" ")[2]))
    assert found <= set(names)
    # The command of the report starts the same program, from any directory.
    alone = subprocess.run(run.commands["worker/0"], shell=True, capture_output=True, text=True)
    assert alone.stdout.startswith("['--x', '7'] ['-m', 'pkg.show']"), alone.stderr


def test_a_signal_reaches_the_program_that_a_script_waits_for(engine, program, tmp_path):
    """The script itself ignores it; SIGKILL, which nothing ignores, must not spare the program."""
    waits = program(
        """
        def leave(*_):
            say("peer_lost", error="asked to leave")
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        say("step", step=1)
        signal.pause()
        """
    )
    script = tmp_path / "launch"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\n{sys.executable} {waits.path}\nexit 5\n")
    script.chmod(0o755)
    row = replace(fakes.bare(script), python=False, spawn="exec")
    with launch(engine, row) as cluster:
        cluster.start()
        cluster.wait_for("step")
        cluster.signal("worker/0", signal.SIGTERM)
        assert cluster.wait_exit("worker/0")["worker/0"]["code"] == 5
        assert cluster.run().of("peer_lost")


@pytest.fixture
def of_user(engine, tmp_path):
    """Return `of_user(body)`, a cluster of a user's program; tests of namespaces are elsewhere."""
    if engine.network.kind != addresses.NAMESPACE:
        pytest.skip("without namespaces a program uses the real /tmp")

    def start(body: str):
        path = tmp_path / "program_of_user.py"
        path.write_text(SAY + textwrap.dedent(body))
        row = replace(programs.read(path).row, observed=False, spawn="")
        return launch(engine, row, directory=tmp_path)

    return start


SAVE_IN_TMP = """
    path = "/tmp/own-checkpoint-of-meta"
    before = os.path.exists(path)
    open(path, "w").close()
    say("checkpoint_saved", path=path, global_step=int(before), seconds=0.0)
    say("checkpoint_saved", path=__file__, global_step=int(os.path.exists(__file__)), seconds=0.0)
"""


def test_each_cluster_of_a_users_program_has_its_own_tmp(of_user):
    """Its files are seen by a restart, not by another cluster; what was there is there."""
    for _ in range(2):
        with of_user(SAVE_IN_TMP) as cluster:
            for _ in range(2):
                cluster.start()
                cluster.wait_exit("worker/0")
            run = cluster.run()
        assert not os.path.exists("/tmp/own-checkpoint-of-meta")
        own = [e for e in run.of("checkpoint_saved") if e["path"].endswith("of-meta")]
        assert [e["global_step"] for e in own] == [0, 1], run.log("worker/0")
        assert all(Path(e["path"]).exists() for e in own)
        others = [e for e in run.of("checkpoint_saved") if e not in own]
        assert {e["path"] for e in others} == {run.trainer.path}
        assert all(e["global_step"] for e in others)


def test_shared_entries_of_tmp_are_the_real_ones(of_user):
    """Of all kinds: a file, a directory, a link to it, one that leads nowhere."""
    with contextlib.ExitStack() as at_end:
        kept = Path(tempfile.mkdtemp(prefix="meta-tmp-", dir="/tmp"))
        at_end.callback(shutil.rmtree, kept)
        links = [Path(f"{kept}-{name}") for name in ("link", "nowhere")]
        for link, to in zip(links, (kept, "/no/such/place"), strict=True):
            link.symlink_to(to)
            at_end.callback(link.unlink)
        body = f"""
            open({str(links[0] / "made")!r}, "w").close()
            assert os.path.islink({str(links[1])!r})
        """
        with of_user(body) as cluster:
            cluster.start()
            cluster.complete()
        assert (kept / "made").exists()


LIMITS = """
import sys
sys.path.insert(0, {harness!r})
import log_limits
log_limits.MAX_PRINTED_BYTES, log_limits.MAX_LOG_BYTES = 1_000_000, 100_000
log_limits.KEPT_BYTES = 10_000
"""


@pytest.fixture
def limited(engine, tmp_path):
    """Yield an engine whose logs are limited to a thousandth of the usual size."""
    (tmp_path / "site").mkdir()
    harness = str(TASK_SIDE)
    (tmp_path / "site" / "sitecustomize.py").write_text(LIMITS.format(harness=harness))
    inherited = {**engine.inherited, "PYTHONPATH": str(tmp_path / "site")}
    made = replace(engine, inherited=inherited, zygotes={})
    yield made
    made.stop()


def test_a_task_that_prints_without_end_is_ended(limited, program):
    body = """
        print("the beginning")
        for _ in range(100_000):  # 500 MB, should the limit not work
            print("again" * 1000)
        """
    with launch(limited, program(body)) as cluster:
        cluster.start()
        with pytest.raises(TrainerFailed) as caught:
            cluster.complete()
        log = cluster.plan.log("worker/0", 0)
    message = "OutputError: the task was ended, having printed more than 1.0 MB"
    assert f"worker/0 failed (signal 9): {message}" in str(caught.value)
    assert log.stat().st_size < 30_000
    text = log.read_text()
    assert text.startswith("the beginning")
    assert "MB cut ...\n" in text
    assert text.endswith(message + "\n")


def test_a_long_log_is_cut_when_its_task_has_ended(limited, program):
    body = """
        print("the beginning")
        print("more" * 50_000)
        say("printed")
        try:
            signal.sigwait([signal.SIGUSR1])
        finally:
            print("the end")
        """
    body = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n" + textwrap.dedent(body)
    with launch(limited, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("printed")
        log = cluster.plan.log("worker/0", 0)
        assert log.stat().st_size > 200_000
        cluster.signal("worker/0", signal.SIGUSR1)
        run = cluster.complete()
    printed = run.log("worker/0")
    assert len(printed) < 21_000
    assert "\n... 0.2 MB cut ...\n" in printed
    assert printed.startswith("the beginning\nmore")
    assert printed.endswith("more\nthe end\n")


def test_a_start_is_over_when_the_history_has_it(engine, program):
    """The history must not report training before the start of its task."""
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
        say("role_read", name=__name__, argv=sys.argv[1:], group=os.getpgid(0) == os.getpid(),
            config=os.environ.get("TF_CONFIG"), path=sys.path[0], cwd=os.getcwd())
        """
    trainer = program(body)
    with launch(engine, trainer, flags={"epochs": 3, "evaluate": True, "export": None}) as cluster:
        cluster.start()
        run = cluster.complete()
    fields = run.of("role_read")[0].data
    assert fields["name"] == "__main__"
    assert fields["argv"] == ["--epochs", "3", "--evaluate"]
    assert fields["config"] is None
    assert fields["path"] == str(Path(trainer.program).parent)
    assert fields["cwd"] == str(run.directory)
    assert {"on stdout", "on stderr"} <= set(run.log("worker/0").splitlines())


def test_a_task_inherits_what_pytest_began_with(fake_engine, monkeypatch):
    """A task does not inherit variables that tests set while other threads run scenarios."""
    monkeypatch.setenv("SET_LATER", "by a test")
    variables = fake_engine.environment("none")
    assert "SET_LATER" not in variables
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in variables
    assert variables["PATH"] == os.environ["PATH"]


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
    """Two clusters listen on the same port, and no process outside reaches either."""
    body = """
        import socket
        server = socket.create_server(("127.0.0.1", 2222))
        say("listening")
        signal.pause()
        """
    assert fake_engine.network.kind == addresses.NAMESPACE, fake_engine.network.reason
    trainer = program(body)
    with launch(fake_engine, trainer) as first, launch(fake_engine, trainer) as second:
        first.start()
        second.start()
        first.wait_for("listening", "worker/0")
        second.wait_for("listening", "worker/0")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", 2222), timeout=1)


def test_clusters_run_on_leased_ports_without_namespaces(fake_engine, program, tmp_path):
    body = """
        import socket
        host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0].split(":")
        socket.create_server((host, int(port)))
        say("listening", port=int(port))
        signal.pause()
        """
    leased = addresses.Network(addresses.LEASED_PORTS, "for this test")
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


@pytest.mark.parametrize("kind", [addresses.NAMESPACE, addresses.LEASED_PORTS])
def test_grandchildren_end_with_their_cluster(fake_engine, program, tmp_path, kind):
    body = """
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                 start_new_session=True)
        say("spawned_child", ns=os.readlink("/proc/self/ns/net"))
        signal.pause()
        """
    chosen = addresses.Network(kind, "for this test")
    name = f"grandchildren-{kind}-{os.getpid()}"
    engine = replace(fake_engine, network=chosen, zygotes={}, directory=tmp_path, session=name)
    with launch(engine, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("spawned_child")
        assert len(leaks.processes(name)) >= 3
    engine.stop()
    assert leaks.processes(name) == []


@pytest.mark.parametrize("fails", ["connect", "mkdir"])
def test_cluster_that_cannot_begin_returns_its_ports(fake_engine, program, fails):
    released = []
    cluster = launch(fake_engine, program("pass"))
    cluster.release = lambda: released.append(True)
    if fails == "connect":
        cluster.connect = lambda: fake_engine.zygotes["no such flavor"]
    else:
        cluster.plan.logs.mkdir(parents=True)
    with pytest.raises((KeyError, FileExistsError)), cluster:
        raise AssertionError("it was entered")
    assert released == [True]
    assert fails == "mkdir" or not cluster.plan.events.exists()


@pytest.mark.parametrize("wrapped", [(), ("unshare", "-rnpf")], ids=["host", "namespaces"])
def test_leak_check_sees_a_stopped_process(wrapped):
    """The check also sees a process in its own namespaces."""
    if wrapped and addresses.probe().kind != addresses.NAMESPACE:
        pytest.skip("this kernel allows no namespaces")
    session = f"stopped-{os.getpid()}"
    body = "import signal; print(flush=True); signal.pause()"
    process = subprocess.Popen(
        [*wrapped, sys.executable, "-c", body],
        env={**os.environ, SESSION_VARIABLE: session},
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    with process.stdout, process:
        process.stdout.readline()
        found = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        try:
            for each in found:
                each.suspend()
            stopped = {psutil.STATUS_STOPPED}
            wait_until("both to stop", lambda: {each.status() for each in found} == stopped, 30)
            assert len(leaks.processes(session)) == len(found) == 1 + bool(wrapped)
        finally:
            for each in reversed(found):
                each.kill()


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
    looked_at = []
    with launch(fake_engine, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("hanging")
        with pytest.raises(DeadlineExceeded, match=r"`hanging`.*alive: worker/0") as caught:
            cluster.wait_for("hanging", within_s=0.1, where=looked_at.append)  # type: ignore[arg-type]
    assert len(looked_at) == 1, "the same event was judged at more than one look"
    text = caught.value.diagnosis
    for part in ("where_it_hangs", "the last words", "worker/0", "alive", "program", "hanging"):
        assert part in text


def test_a_wait_that_ends_late_names_the_task_that_failed(fake_engine, program):
    """The awaited task lives on without its peer, whose error is the cause."""
    body = """
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            raise ValueError("the cause")
        signal.pause()
        """
    trainer = replace(program(body, (("worker", 2),)), role="tf_config")
    with launch(fake_engine, trainer, env={}) as cluster:
        cluster.start()
        cluster.wait_exit("worker/0")
        late = r"alive: worker/1; worker/0 failed \(exit 1\): ValueError: the cause\)$"
        with pytest.raises(DeadlineExceeded, match=late):
            cluster.wait_for("hanging", within_s=0.1)


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


def test_unsupported_task_is_reported_during_a_wait(fake_engine, program):
    with launch(fake_engine, program("say('unsupported', reason='gone'); sys.exit(77)")) as cluster:
        cluster.start()
        with pytest.raises(Unsupported, match="gone"):
            cluster.wait_for("step")


def test_wait_raises_unsupported_when_a_peer_reported_it(fake_engine, program):
    """The peers of an `unsupported` task may fail before they find the reason themselves."""
    body = """
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
            sys.exit(1)
        say('unsupported', reason='gone')
        sys.exit(77)
    """
    with launch(fake_engine, program(body, (("worker", 2),))) as cluster:
        cluster.start()
        cluster.wait_exit("worker/0")
        with pytest.raises(Unsupported, match="gone"):
            cluster.wait_for("step", "worker/1")


def test_a_held_task_is_still_there_however_late_the_harness(fake_engine, program):
    """A hold applies to the task's next incarnation only, and until it is released."""
    body = f"""
        sys.path.insert(0, {str(ROOT)!r})
        from reference_trainers.support.events import EventWriter
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


GARBAGE = {
    "text": ("Traceback (most recent call last):", "not JSON"),
    "half-line": ('{"event": "step", "time_', "not JSON"),
    "list": ("[1, 2]", "a JSON list, not an object"),
    "null": ("null", "a JSON NoneType, not an object"),
    "no-time": ('{"event": "step", "task": "worker/0", "attempt": 0}', "it has no time_s"),
    "nothing": ("time_s", "time_s is None, not a number"),
    "nan": ("time_s", "time_s is nan, no time of a clock"),
    "huge": ("time_s", "time_s is inf, no time of a clock"),
    "digits": ("global_step", "a number with 300 digits or more"),
    "word": ("global_step", "global_step is 'first', not a number"),
    "truth": ("attempt", "attempt is True, not a number"),
    "number": ("task", "task is 3, not text"),
    "nested": ("loss", "it is nested deeper than 20"),
    "abyss": ("loss", "it is nested deeper than 20"),
    "metrics": ("metrics", "metrics is [1], not an object"),
}
VALUES = {
    "nothing": None,
    "nan": math.nan,
    "huge": math.inf,
    "digits": 10**400,
    "word": "first",
    "truth": True,
    "number": 3,
    "nested": json.loads("[" * 30 + "]" * 30),
    "metrics": [1],
}


def event_line(**changes: object) -> str:
    common = {"event": "step", "time_s": 1.0, "task": "worker/0", "attempt": 0}
    return json.dumps({**common, **changes})


def garbage_line(kind: str) -> str:
    """Return a line with this kind of garbage, as the whole line or in one field of an event."""
    if kind == "abyss":  # deeper than Python's own limit
        return event_line(loss=0).replace('"loss": 0', '"loss": ' + "[" * 10**5 + "]" * 10**5)
    text, _ = GARBAGE[kind]
    return event_line(**{text: VALUES[kind]}) if kind in VALUES else text


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_an_event_file_is_refused_with_its_line(tmp_path: Path, kind: str):
    path = tmp_path / "worker-0.0.jsonl"
    path.write_text(f"{event_line()}\n\n{garbage_line(kind)}\n{event_line()}\n")
    tail = Tail(path)
    assert len(tail.read()) == 1
    assert tail.refused.startswith(f"{path}:3: no event: ")
    assert GARBAGE[kind][1] in tail.refused
    assert tail.read() == []
    with pytest.raises(ValueError, match=re.escape(tail.refused)):
        read(tmp_path)


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path):
    path = tmp_path / "worker-0.0.jsonl"
    path.write_bytes(b'{"event": "\xff"}\n')
    tail = Tail(path)
    assert tail.read() == []
    assert f"{path}:1: 'utf-8' codec can't decode" in tail.refused


@pytest.mark.parametrize("cut", [1, 30, -1])
def test_event_that_is_read_in_two_parts_is_one_event(tmp_path: Path, cut: int):
    path, line = tmp_path / "worker-0.0.jsonl", event_line(global_step=7) + "\n"
    tail = Tail(path)
    path.write_text(line[:cut])
    assert tail.read() == []
    with path.open("a") as file:
        file.write(line[cut:])
    (event,) = tail.read()
    assert event["global_step"] == 7
    assert not tail.refused


def test_not_a_number_is_a_loss_like_any_other(tmp_path: Path):
    (tmp_path / "worker-0.0.jsonl").write_text(event_line(loss=math.nan) + "\n" + event_line()[:9])
    (event,) = read(tmp_path)
    assert math.isnan(event["loss"])


def test_trainer_that_writes_garbage_has_failed(fake_engine, program):
    body = """
        say("joined")
        with open(os.environ["TRAINER_EVENTS"], "a") as file:
            file.write("3\\n")
        signal.pause()
        """

    def wait_for_a_step():
        with launch(fake_engine, program(body)) as cluster:
            cluster.start()
            cluster.wait_for("step")

    with pytest.raises(
        TrainerFailed, match=r"^worker/0 wrote \S+:2: no event: a JSON int"
    ) as failed:
        wait_for_a_step()
    assert "joined" in failed.value.diagnosis
    assert "stacks of worker/0:" in failed.value.diagnosis


BLOCKS = """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if "TF_CONFIG" in os.environ:
        os.environ["TASK"] = "{type}/{index}".format(**json.loads(os.environ["TF_CONFIG"])["task"])
    say("step")
    signal.pause()
"""


def pending(pid: int) -> set[int]:
    """Return the signals that were sent to a process that blocks them."""
    (mask,) = re.findall(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}


def test_a_signal_is_sent_when_the_call_is_over(fake_engine, program):
    with launch(fake_engine, program(BLOCKS)) as cluster:
        cluster.start()
        cluster.wait_for("step")
        cluster.signal("worker/0", signal.SIGUSR1)
        assert pending(cluster.pids["worker/0"]) == {signal.SIGUSR1}


def test_signal_reaches_its_task_only(fake_engine, program):
    with launch(fake_engine, program(BLOCKS, (("worker", 3),))) as cluster:
        cluster.start()
        for task in cluster.tasks:
            cluster.wait_for("step", task)
        cluster.signal("worker/1", signal.SIGUSR1)
        reached = [task for task, pid in cluster.pids.items() if pending(pid)]
    assert reached == ["worker/1"]


def test_waiting_neither_opens_nor_sorts_while_nothing_comes(fake_engine, program):
    """Each look costs one read per event file, because the machine may be timed meanwhile."""
    body = "[say('step', step=n) for n in range(50)]; say('ready'); signal.pause()"
    looks: list[Run] = []

    def look(run: Run) -> bool:
        looks.append(run)
        return len(run.of("step")) > 50 or len(looks) == 30

    with launch(fake_engine, program(body)) as cluster:
        cluster.start()
        cluster.wait_for("ready")
        give_time(cluster, 0.0, bool)
        with calls() as made:
            give_time(cluster, 60, look)
    assert len(looks) == made["read"] == 30
    for name in ("open", "sorted", "sort", "insort_right", "shlex.quote"):
        assert made[name] == 0, name


def test_the_history_can_be_read_from_the_run_directory(fake_engine, program):
    """The files hold the whole history once at any time, because the session may end next."""
    body = "say('fault_started', fault='injected'); signal.pause()"
    with launch(fake_engine, program(body), name="reported") as cluster:
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


LEFT = "sleep 1000"
STARTS = {
    "child": (f"subprocess.Popen({LEFT.split()})", [LEFT]),
    "daemon": (f"subprocess.Popen({LEFT.split()}, start_new_session=True)", [LEFT]),
    "grandchild": (f"subprocess.run(['sh', '-c', '{LEFT} & true'])", [LEFT]),
    "several": (f"[subprocess.Popen({LEFT.split()}) for _ in range(2)]", [LEFT, LEFT]),
    "ends with it": ("subprocess.Popen(['cat'], stdin=subprocess.PIPE)", []),
    "ended before": ("subprocess.run(['true'])", []),
    "none": ("pass", []),
}


@pytest.mark.parametrize(("body", "left"), STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("kind", [addresses.NAMESPACE, addresses.LEASED_PORTS])
def test_processes_that_outlive_their_task_are_reported(
    fake_engine, program, body, left, kind, tmp_path
):
    deadlines = replace(fake_engine.deadlines, orphan_s=0.2 if left else 60.0)
    network = addresses.Network(kind, "for this test")
    engine = replace(fake_engine, network=network, zygotes={}, directory=tmp_path)
    engine = replace(engine, deadlines=deadlines)
    with launch(engine, program(body)) as cluster:
        cluster.start()
        run = cluster.complete()
    engine.stop()
    found = [c for e in run.of("left_running", "worker/0") for c in e["commands"]]
    assert found == left


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
        flavors={"none": {}},
        network=addresses.probe(),
        deadlines=Deadlines(),
        directory=tmp_path,
        progress=Progress(),
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
    said = r"did not import no_such_module; within \d+ s the zygote ended with exit code 1"
    said += r" \(ModuleNotFoundError: No module named 'no_such_module'\); see .*zygote.log"
    for _ in range(2):
        with pytest.raises(HarnessError, match=said):
            zygote.wait_ready(Deadlines())
    zygote.stop(Deadlines())
    assert "No module named 'no_such_module'" in log.read_text()
    assert not zygote.directory.exists()


@pytest.mark.parametrize(
    ("context", "refused"),
    [("None", False), ("Context(False)", False), ("Context(True)", True)],
    ids=["none", "not initialized", "initialized"],
)
def test_started_runtime_is_not_forked(tmp_path, context, refused):
    package = tmp_path / "tensorflow"
    (package / "python" / "eager").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from types import SimpleNamespace as N\nkeras = N(layers=N(Dense=N))\n"
    )
    (package / "python" / "eager" / "context.py").write_text(
        "class Context:\n    def __init__(self, made): self._initialized = made\n"
        f"_context = {context}\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "zygote.log"
    zygote = Zygote.start(sys.executable, environment, preload=["tensorflow"], log=log)
    said = pytest.raises(HarnessError, match="started its runtime; use --spawn=exec")
    with said if refused else contextlib.nullcontext():
        zygote.wait_ready(Deadlines())
    zygote.stop(Deadlines())


def with_zygotes_of_its_own(engine: Engine, directory: Path, **changes: object) -> Engine:
    """Return an engine whose zygotes a test may kill."""
    own = {"zygotes": {}, "restarts": [], "lock": Lock(), "session": f"own-{os.getpid()}"}
    return replace(engine, directory=directory, **{**own, **changes})  # type: ignore[arg-type]


def lose_a_zygote(engine: Engine, trainer: Trainer) -> None:
    """Kill the engine's zygote while its cluster trains."""
    with launch(engine, trainer) as cluster:
        cluster.start()
        engine.zygotes["none"].process.kill()
        cluster.wait_for("never")


@pytest.mark.parametrize("kind", [addresses.NAMESPACE, addresses.LEASED_PORTS])
def test_dead_zygote_is_replaced_for_the_next_cluster(fake_engine, program, tmp_path, kind):
    chosen = addresses.Network(kind, "for this test")
    engine = with_zygotes_of_its_own(fake_engine, tmp_path, network=chosen)
    with pytest.raises(HarnessError, match=r"the zygote was killed by signal 9; see .*zygote-none"):
        lose_a_zygote(engine, program("signal.pause()"))
    # Without a PID namespace, tasks end shortly after the process that started them.
    wait_until("all processes to end", lambda: not leaks.processes(engine.session), 5)
    with launch(engine, program("say('step')")) as cluster:
        cluster.start()
        assert cluster.complete().of("step")
    assert len(engine.restarts) == 1
    engine.stop()


def test_second_death_in_a_row_is_one_error_for_all(fake_engine, program, tmp_path):
    engine = with_zygotes_of_its_own(fake_engine, tmp_path)
    errors = []
    for _ in range(5):
        with pytest.raises(HarnessError) as caught:
            lose_a_zygote(engine, program("signal.pause()"))
        errors.append(str(caught.value))
    assert re.search(r"killed by signal 9.* second in a row, so no other is started", errors[2])
    assert len(set(errors[2:])) == 1
    assert len(engine.restarts) == 1
    engine.stop()


def test_stop_ends_a_zygote_that_is_just_being_started(fake_engine, tmp_path, monkeypatch):
    engine = with_zygotes_of_its_own(fake_engine, tmp_path)
    really_start, started, stop = Zygote.start, [], Thread(target=engine.stop)

    def start(*given: Any, **how: Any) -> Zygote:
        stop.start()
        stop.join(0.5)  # it must wait for the zygote that is being started
        started.append(really_start(*given, **how))
        return started[0]

    monkeypatch.setattr(Zygote, "start", start)
    engine.warm("none")
    stop.join()
    assert engine.zygotes == {}
    assert started[0].process.poll() is not None
    with pytest.raises(HarnessError, match="the session is over"):
        engine.warm("none")


def test_stop_does_not_wait_for_an_import(fake_engine, tmp_path):
    """Another thread waits for the import meanwhile."""
    (tmp_path / "hangs.py").write_text("import signal\nprint('hangs', flush=True)\nsignal.pause()")
    inherited = {**to_inherit(), "PYTHONPATH": str(tmp_path)}
    engine = with_zygotes_of_its_own(fake_engine, tmp_path, preload=("hangs",), inherited=inherited)
    engine.warm("none")
    stdout = engine.zygotes["none"].process.stdout
    assert stdout
    select.select([stdout], [], [], 30)
    stdout.readline()
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(engine.connect, "none")
        wait_until("the wait", engine.zygotes["none"].importing.locked, 30)
        engine.stop()
        with pytest.raises(HarnessError, match="the session is over"):
            connecting.result(5)


def test_sockets_have_short_paths_below_a_long_tmpdir(fake_engine, program, tmp_path, monkeypatch):
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    engine = with_zygotes_of_its_own(fake_engine, tmp_path)
    body = "import multiprocessing; multiprocessing.Manager(); say('step')"
    with launch(engine, program(body)) as cluster:
        cluster.start()
        cluster.complete()
    (zygote,) = engine.zygotes.values()
    assert stat.S_IMODE(zygote.directory.stat().st_mode) == 0o700
    engine.stop()
    assert not zygote.directory.exists()


def test_no_short_directory_for_sockets_names_the_limit(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 150)
    long.mkdir()
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setattr(paths, "SHORT", (str(tmp_path / "missing"), str(open_to_all)))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(paths, "LONGEST_BELOW", "/z")
    with pytest.raises(HarnessError, match=r"at most 107 bytes \(AF_UNIX\): tried .*; set TMPDIR"):
        Zygote.start(sys.executable, os.environ)
    open_to_all.chmod(0o1777)
    assert paths.short_directory().parent == open_to_all


@pytest.mark.parametrize("kind", [addresses.NAMESPACE, addresses.LEASED_PORTS])
def test_killing_pytest_leaves_no_process_and_no_namespace(tmp_path, kind):
    """Kill pytest by SIGKILL while a cluster runs. The rules for its ports are removed, too."""
    ready = tmp_path / "ready"
    target = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", str(ROOT / "suite" / "meta" / "killed_session.py")],
        env={**os.environ, "KILLED_READY": str(ready), "KILLED_NETWORK": kind},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    text = wait_until(
        "the killed session's cluster", lambda: ready.exists() and ready.read_text(), 60
    )
    session, temporary, tool = text.split(" ")
    running = leaks.processes(session)
    if tool:
        assert rules(tool, session)
    target.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    target.wait()
    # The zygote, two tasks, the cluster's init and the holder of its network or of its rules.
    assert len(running) >= 4 + (kind == addresses.NAMESPACE or tool != "")
    wait_until("everything to end", lambda: not leaks.processes(session), 5)
    assert time.monotonic() - killed_s < 5
    assert not Path(temporary).exists()
    if tool:
        wait_until("the rules to go", lambda: not rules(tool, session), 5)
    spaces = {line.split(" in ")[1].split(":")[0] for line in running}
    assert not spaces - {str(Path("/proc/self/ns/net").readlink())} & living_networks()


def living_networks() -> set[str]:
    """Return the network namespaces that some process still holds."""
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(str(Path(f"/proc/{process.pid}/ns/net").readlink()))
        except OSError:
            continue
    return found
