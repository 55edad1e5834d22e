"""Tests of the nodes of a Ray cluster, without Ray: their agents run in this process."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.harness.cluster import diagnostics
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Place
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import BadInput, HarnessError, Unsupported
from suite.harness.core.settings import Settings
from suite.harness.engines import ray_engine
from suite.harness.engines.node_agent import Files, NodeAgent, clock_offset
from suite.harness.engines.ray_engine import Node, RayEngine, RemoteInit
from suite.harness.session import setup
from suite.meta import fakes


@pytest.fixture
def root(tmp_path):
    (tmp_path / "events").mkdir()
    return tmp_path


def names(pieces):
    return [(name, start, content.decode()) for name, start, content in pieces]


def test_files_are_returned_once_and_event_files_last(root):
    files = Files(root, ["events"])
    (root / "events/a.jsonl").write_text("one\n")
    (root / "events/weights.npz").write_text("numbers")
    (root / "events/a.hold").write_text("")
    assert names(files.new()) == [
        ("events/weights.npz", 0, "numbers"),
        ("events/a.jsonl", 0, "one\n"),
    ]
    assert files.new() == []
    with (root / "events/a.jsonl").open("a") as file:
        file.write("two\n")
    assert names(files.new()) == [("events/a.jsonl", 4, "two\n")]


def test_an_event_line_is_returned_once_it_is_complete(root):
    files = Files(root, ["events"])
    (root / "events/a.jsonl").write_text('{"event": "step"}\n{"event": "wei')
    assert names(files.new()) == [("events/a.jsonl", 0, '{"event": "step"}\n')]
    assert files.new() == []
    with (root / "events/a.jsonl").open("a") as file:
        file.write('ghts"}\n{"ev')
    assert names(files.new()) == [("events/a.jsonl", 18, '{"event": "weights"}\n')]
    assert names(files.new(rest=True)) == [("events/a.jsonl", 39, '{"ev')]


def test_a_log_that_was_cut_and_a_file_that_was_written_again_are_returned_whole(root):
    files = Files(root, ["events"])
    (root / "events/a.log").write_text("a long beginning")
    (root / "events/b.npz").write_text("part")
    files.new()
    (root / "events/a.log").write_text("the end")
    (root / "events/b.npz").write_text("part and rest")
    assert names(files.new()) == [
        ("events/b.npz", 0, "part and rest"),
        ("events/a.log", 0, "the end"),
    ]


def test_the_offset_of_a_clock_is_that_of_the_shortest_round_trip(monkeypatch):
    clock = itertools.count(100.0, 1.0)  # each reading here takes a second
    monkeypatch.setattr("suite.harness.engines.node_agent.time.monotonic", lambda: next(clock))
    answers = iter([107.0, 200.0, 112.0])

    def ask() -> float:
        answer = next(answers)
        if answer == 200.0:
            next(clock)  # a long way
        return answer

    offset_s, error_s = clock_offset(ask, 3)
    assert (offset_s, error_s) == (6.5, 0.5)


class Agent:
    """A handle like that of a Ray actor; its calls happen at once, in this process."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *given: lambda: getattr(self.agent, method)(*given))


class Lost(Exception):
    """The error of an actor whose node died."""


class MemoryFull(Lost):
    """The error of an actor that Ray's memory monitor killed."""


@pytest.fixture
def nodes(fake_engine, monkeypatch):
    """Yield two nodes whose agents run in this process."""
    fake_ray = SimpleNamespace(
        wait=lambda calls, timeout: (calls, []),  # noqa: ARG005 - as Ray names it
        get=lambda call, timeout: call(),  # noqa: ARG005
        exceptions=SimpleNamespace(
            RayTaskError=ZeroDivisionError,
            GetTimeoutError=ZeroDivisionError,
            OutOfMemoryError=MemoryFull,
            RayError=Lost,
        ),
    )
    monkeypatch.setattr(ray_engine, "ray", lambda: fake_ray)
    monkeypatch.setattr("suite.harness.engines.node_agent.POLL_S", 0.0)
    made = []
    for number in range(2):
        agent = NodeAgent(fake_engine.deadlines, "meta")
        agent.warm("none", sys.executable, fake_engine.environment("none"), "fork", ())
        node = Node(f"{number}" * 10, "127.0.0.1", Agent(agent))
        node.facts = agent.describe(sys.executable)
        made.append(node)
    yield made
    for node in made:
        node.agent.agent.stop("")
        assert node.agent.agent.left_behind() == []


@pytest.fixture
def launch(fake_engine, nodes, tmp_path):
    """Return `launch(body)`: a cluster of two workers, one on each node."""
    engine = replace(fake_engine, directory=tmp_path / "run", zygotes={})
    files = itertools.count()

    def place(name, tasks, on_hosts, on_disk):  # noqa: ARG001 - as the engine's
        by_task = dict(zip(tasks, nodes, strict=True))

        def connect(flavor):
            found = (f"events/{name}", f"logs/{name}")
            return RemoteInit(
                name, by_task, flavor, engine.directory, found, engine.deadlines
            ).open()

        return Place(dict.fromkeys(tasks, "127.0.0.1:1"), connect, lambda: None)

    def start(body: str) -> Cluster:
        program = tmp_path / f"program-{next(files)}.py"
        program.write_text(PREAMBLE + body)
        engine.place = place  # type: ignore[method-assign]
        trainer = fakes.bare(program, (("worker", 2),))
        return engine.launch(trainer, backend="none", keras="none")

    return start


PREAMBLE = """
import fcntl, json, os, signal, subprocess, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
"""
EMIT = """
import time
index = task["index"]
def say(event, **data):
    line = {"event": event, "time_s": time.monotonic(), "task": f"worker/{index}", "attempt": 0}
    with open(os.environ["TRAINER_EVENTS"], "a") as file:
        file.write(json.dumps({**line, **data}) + "\\n")
"""


def test_events_files_and_logs_of_all_nodes_arrive_in_the_run_directory(launch, nodes):
    body = EMIT + (
        "path = os.path.join(os.getcwd(), f'weights-{index}.npz')\n"
        "open(path, 'w').write('numbers')\n"
        "say('weights', npz=path, when='initial')\n"
        "print('printed by', index)\n"
    )
    with launch(body) as cluster:
        cluster.start()
        run = cluster.finish()
    for worker in run.workers:
        path = run.of("weights", worker)[0]["npz"]
        assert path.startswith(str(run.directory))
        assert Path(path).read_text() == "numbers"
        assert "printed by" in run.end_of_log(worker)
        assert run.exit_of(worker)["code"] == 0
    directories = {node.facts["directory"] for node in nodes}
    assert len(directories) == 2
    assert not any(d in (run.directory / "worker-0.0.jsonl").read_text() for d in directories)


def test_times_are_those_of_the_driver_and_foreign_processes_have_no_number(launch, nodes):
    nodes[1].offset_s = 1000.0
    nodes[1].facts["boot_id"] = "another machine"
    with launch(EMIT + "say('step', global_step=1)\n") as cluster:
        cluster.start()
        run = cluster.finish()
    (ours,), (theirs,) = (run.of("step", worker) for worker in run.workers)
    assert 900 < ours.time_s - theirs.time_s < 1100
    assert run.of("spawned", "worker/0")[0].time_s - run.of("spawned", "worker/1")[0].time_s > 900
    assert run.of("spawned", "worker/0")[0]["pid"] > 0
    assert run.of("spawned", "worker/1")[0]["pid"] == 0
    assert "another machine" in diagnostics.waits_in(0)


def test_signals_and_holds_reach_the_node_of_the_task(launch):
    body = EMIT + (
        "say('before')\n"
        "if 'TRAINER_HOLD' in os.environ:\n"
        "    path = os.environ['TRAINER_HOLD'].split(':')[2]\n"
        "    fcntl.flock(open(path), fcntl.LOCK_SH)\n"
        "say('after')\n"
        "signal.pause()\n"
    )
    with launch(body) as cluster:
        cluster.hold("worker/1", "before")
        cluster.start()
        cluster.wait_for("after", "worker/0")
        cluster.wait_for("before", "worker/1")
        assert not cluster.run().of("after", "worker/1")
        cluster.let_go("worker/1")
        cluster.wait_for("after", "worker/1")
        cluster.signal("worker/1", signal.SIGKILL, fault="kill")
        exits = cluster.wait_exit("worker/1")
        assert exits["worker/1"]["signal"] == signal.SIGKILL
        assert cluster.alive() == ["worker/0"]


def test_the_rest_of_a_file_arrives_when_the_cluster_ends(launch):
    body = EMIT + (
        "say('begun')\n"
        "with open(os.environ['TRAINER_EVENTS'], 'a') as file:\n"
        "    file.write('half a line')\n"
        "open(os.path.join(os.getcwd(), f'written-{index}'), 'w').close()\n"
        "signal.pause()\n"
    )
    with launch(body) as cluster:
        cluster.start()
        directory = cluster.plan.events
        marks = [directory / f"written-{number}" for number in range(2)]
        wait_until("both", lambda: cluster.alive() and all(m.exists() for m in marks), 30)
        event_file = directory / "worker-0.0.jsonl"
        assert event_file.read_text().endswith("}\n")
    assert event_file.read_text().endswith("}\nhalf a line")


def test_processes_left_behind_are_those_of_all_nodes(launch):
    body = (
        "if task['index'] == 1:\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    with launch(body) as cluster:
        cluster.deadlines = replace(cluster.deadlines, orphan_s=0.2)
        cluster.start()
        run = cluster.complete()
    (left,) = run.of("left_running")
    assert left.task == "worker/1"


def test_a_file_of_another_cluster_is_copied_to_the_node(launch, tmp_path):
    weights = tmp_path / "run" / "events" / "000-other" / "weights.npz"
    weights.parent.mkdir(parents=True)
    weights.write_text("numbers")
    body = EMIT + "say('read', text=open(sys.argv[2]).read(), path=sys.argv[2])\n"
    with launch(body) as cluster:
        cluster.plan = replace(cluster.plan, flags={"weights": weights})
        cluster.start()
        run = cluster.finish()
    assert [e["text"] for e in run.of("read")] == ["numbers", "numbers"]
    assert {e["path"] for e in run.of("read")} == {str(weights)}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Lost, r"node 127.0.0.1 \(11111111\) left the Ray cluster"),
        (MemoryFull, r"node 127.0.0.1 \(11111111\): Ray's memory monitor killed the agent"),
    ],
)
def test_a_node_that_is_lost_is_named(launch, nodes, error, message):
    def lost():
        raise error("the actor died")

    with launch("signal.pause()\n") as cluster:
        cluster.start()
        connection = cluster.cluster_init
        connection.polls[nodes[1].id] = lost
        with pytest.raises(HarnessError, match=message):
            cluster.alive()
        connection.polls[nodes[1].id] = lambda: ([], [])


def test_disks_and_hosts_of_their_own_are_unsupported(fake_engine):
    given = {name: getattr(fake_engine, name) for name in ("python", "flavors")}
    more = {name: getattr(fake_engine, name) for name in ("deadlines", "directory", "progress")}
    network = ray_engine.network("a:1")
    engine = RayEngine(**given, **more, network=network, session="meta")
    for hosts, disk in ((True, False), (False, True)):
        with pytest.raises(Unsupported, match="of their own need namespaces"):
            engine.place("001-run", ["worker/0"], hosts, disk)


@pytest.fixture
def prepared(nodes, fake_engine, monkeypatch):
    """Return the two nodes; this process does not end with its parent."""
    monkeypatch.setattr(NodeAgent, "end_with_node", lambda _: None)
    return ray_engine.Nodes(nodes, fake_engine.deadlines)


def test_nodes_that_have_everything_pass(prepared, tmp_path):
    prepared.check(sys.executable, str(tmp_path), "meta")
    assert [node.error_s for node in prepared.nodes] == [0.0, 0.0]
    assert list(tmp_path.glob(".tfdc-*")) == []


def test_a_node_without_the_interpreter_is_refused(prepared, tmp_path):
    with pytest.raises(BadInput, match=r"node 127.0.0.1 \(00000000\) has no /no/python; --python"):
        prepared.check("/no/python", str(tmp_path), "meta")


def test_a_node_with_another_checkout_is_refused(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("suite.harness.engines.node_agent.ROOT", Path("/elsewhere"))
    with pytest.raises(BadInput, match="imports the suite from /elsewhere, this process from"):
        prepared.check(sys.executable, str(tmp_path), "meta")


def test_a_directory_that_a_node_does_not_see_is_refused(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared.nodes[1].agent.agent, "has", lambda *_: False)
    with pytest.raises(BadInput, match=r"node 127.0.0.1 \(11111111\) does not see what is written"):
        prepared.check(sys.executable, str(tmp_path), "meta")
    assert list(tmp_path.glob(".tfdc-*")) == []


def test_a_shared_directory_that_cannot_be_written_is_refused(prepared, tmp_path):
    with pytest.raises(BadInput, match=r"--shared-dir .*missing: cannot be written: No such file"):
        prepared.check(sys.executable, str(tmp_path / "missing"), "meta")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ray_address": "a:1"}, "--ray-address a:1: only with --engine ray"),
        ({"shared_dir": "/d"}, "--shared-dir /d: only with --engine ray"),
        ({"engine": "ray", "ray_address": "a:1"}, "--ray-address a:1: needs --shared-dir"),
    ],
)
def test_options_of_an_engine_need_it(given, message):
    with pytest.raises(BadInput, match=message):
        setup.check_engine_options(Settings(**given))


def test_without_ray_the_engine_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"Ray is not installed here; pip install -e '.\[ray\]'"):
        ray_engine.start_nodes(Deadlines())


def test_a_line_that_is_no_event_keeps_its_bytes():
    assert ray_engine._shifted(b"garbage", 5.0) == b"garbage"
    moved = json.loads(ray_engine._shifted(b'{"time_s": 7.5, "event": "step"}', 5.0))
    assert moved == {"time_s": 2.5, "event": "step"}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "--ray-address 127.0.0.1:1: cannot be reached: .*refused"),
        ("127.0.0.1:99999", "cannot be reached"),
        ("ray://head:10001", "must be HOST:PORT of the head node, or auto"),
        ("head", "must be HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_refused(address, message):
    with pytest.raises(BadInput, match=message):
        ray_engine.check_reachable(address)
