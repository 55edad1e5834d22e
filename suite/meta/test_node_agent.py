"""Tests of the nodes of a Ray cluster, without Ray: their agents run in this process."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.harness.cluster import diagnostics
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Needs, Place
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import BadInput, HarnessError, Unsupported
from suite.harness.core.settings import Settings
from suite.harness.engines import (
    placement,
    ray_connection,
    ray_engine,
    remote_init,
    simulated_cluster,
)
from suite.harness.engines.node_agent import Clock, Files, NodeAgent, compare_clocks
from suite.harness.engines.nodes import Node, Nodes
from suite.harness.engines.placement import Placement
from suite.harness.engines.ray_engine import RayEngine
from suite.harness.engines.remote_init import RemoteInit
from suite.harness.session import setup
from suite.meta import fakes

WORKERS = ("worker/0", "worker/1")


def needs(*tasks: str, **more: Any) -> Needs:
    """Return the needs of a cluster in which the workers train."""
    return Needs(tasks, [task for task in tasks if task.startswith("worker")], **more)


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
    readings = itertools.count(100.0, 1.0)  # each reading here takes a second
    monkeypatch.setattr("suite.harness.engines.node_agent.time.monotonic", lambda: next(readings))
    answers = iter([107.0, 200.0, 112.0])

    def ask() -> float:
        answer = next(answers)
        if answer == 200.0:
            next(readings)  # a long way
        return answer

    clock = compare_clocks(ask, 3)
    assert (clock.offset_s, clock.error_s) == (6.5, 0.5)
    later_s = clock.read_s + 1000.0
    assert clock.error_at(later_s) == pytest.approx(0.515)
    assert Clock().error_at(later_s) == 0.0


class Agent:
    """A handle like that of a Ray actor; its calls happen at once, in this process."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent
        self.down = False  # its node has ended

    def __getattr__(self, method: str) -> Any:
        def call(*given: Any) -> Any:
            if self.down:
                raise Lost("the actor died")
            return getattr(self.agent, method)(*given)

        return SimpleNamespace(remote=lambda *given: lambda: call(*given))


class Groups:
    """A fake of `ray.util.placement_group` that gives the tasks of a group a node each in turn."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def placement_group(self, bundles: Any, strategy: str) -> Any:
        assert strategy in ("SPREAD", "STRICT_SPREAD")
        return SimpleNamespace(bundles=bundles, wait=lambda _: True)

    def placement_group_table(self, group: Any) -> Any:
        up = [node for node in self.nodes if not node.agent.down]
        by_ip = {f"node:{node.ip}": node.id for node in up}
        placed = {}
        for i, bundle in enumerate(group.bundles):
            pinned = [by_ip[name] for name in bundle if name in by_ip]
            placed[i] = (pinned or [up[i % len(up)].id])[0]
        return {"bundles_to_node_id": placed}

    def remove_placement_group(self, group: Any) -> None:
        pass

    def holder(self, bundle: tuple[Any, int], gpus: int) -> Any:
        """Return a handle of an actor in this bundle, which has the first GPUs of its node."""
        group, index = bundle

        def visible() -> str:
            placed = self.placement_group_table(group)["bundles_to_node_id"][index]
            ip = next(node.ip for node in self.nodes if node.id == placed)
            return ",".join(f"{ip}/{number}" for number in range(gpus))

        return SimpleNamespace(visible=SimpleNamespace(remote=lambda: visible))


def switch_off(node: Node) -> Callable[[str], str]:
    """Return the command that ends a node."""

    def command(ip: str) -> str:
        assert ip == node.ip
        node.agent.agent.stop("")
        node.agent.down = True
        return ""

    return command


class Lost(Exception):
    """The error of an actor whose node died."""


class MemoryFull(Lost):
    """The error of an actor that Ray's memory monitor killed."""


@pytest.fixture
def nodes(fake_engine, monkeypatch):
    """Yield the nodes 127.0.0.1 and 127.0.0.2, whose agents run in this process."""
    made: list[Node] = []
    groups = Groups(made)
    fake_ray = SimpleNamespace(
        remote=lambda _: SimpleNamespace(
            options=lambda scheduling_strategy, num_gpus, **_: SimpleNamespace(
                remote=lambda: groups.holder(scheduling_strategy, num_gpus)
            )
        ),
        nodes=lambda: [
            {"NodeID": node.id, "Alive": not node.agent.down, "Resources": {"CPU": 8}}
            for node in made
        ],
        wait=lambda calls, timeout: (calls, []),  # noqa: ARG005 - as Ray names it
        get=lambda call, timeout: call(),  # noqa: ARG005
        exceptions=SimpleNamespace(
            RayTaskError=ZeroDivisionError,
            GetTimeoutError=ZeroDivisionError,
            OutOfMemoryError=MemoryFull,
            RayError=Lost,
        ),
    )
    monkeypatch.setattr(ray_connection, "ray", lambda: fake_ray)
    monkeypatch.setattr("suite.harness.engines.node_agent.POLL_S", 0.0)
    for number in range(2):
        agent = NodeAgent(fake_engine.deadlines, "meta")
        agent.warm("none", sys.executable, fake_engine.environment("none"), "fork", ())
        node = Node(f"{number}" * 10, f"127.0.0.{number + 1}", Agent(agent))
        node.facts = agent.describe(sys.executable)
        made.append(node)
    monkeypatch.setattr(placement, "_groups", lambda: groups)
    monkeypatch.setattr(placement, "_bundle", lambda group, index: (group, index))
    yield made
    for node in made:
        node.agent.agent.stop("")
        assert node.agent.agent.left_behind() == []


@pytest.fixture
def launch(fake_engine, nodes, tmp_path):
    """Return `launch(body)`: a cluster of two workers, one on each node; `gpus` for each."""
    engine = replace(fake_engine, directory=tmp_path / "run", zygotes={})
    files = itertools.count()

    def place(name, needs, gpus):
        found = Nodes(sys.executable, str(tmp_path), "meta", engine.deadlines, nodes)
        placed = Placement(name, found).reserve(needs, gpus)

        def connect(flavor):
            return RemoteInit(
                placed,
                start_zygote=lambda node: None,  # noqa: ARG005 - they have one
                end=lambda node: found.end(node, switch_off(node)),
                zygote=flavor,
                directory=engine.directory,
                files=(f"events/{name}", f"logs/{name}"),
                deadlines=engine.deadlines,
            ).open()

        return Place(placed.addresses, connect, placed.release, dict(placed.gpus))

    def start(body: str, gpus: int = 0) -> Cluster:
        program = tmp_path / f"program-{next(files)}.py"
        program.write_text(PREAMBLE + body)
        engine.place = partial(place, gpus=gpus)  # type: ignore[method-assign]
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


def test_times_are_those_of_the_driver_and_foreign_processes_have_no_number(
    launch, nodes, monkeypatch
):
    nodes[1].facts["boot_id"] = "another machine"
    ahead = nodes[1].agent.agent.clock
    monkeypatch.setattr(nodes[1].agent.agent, "clock", lambda: ahead() + 1000.0)
    with launch(EMIT + "say('step', global_step=1)\n") as cluster:
        cluster.start()
        run = cluster.finish()
    (ours,), (theirs,) = (run.of("step", worker) for worker in run.workers)
    assert 900 < ours.time_s - theirs.time_s < 1100
    assert run.of("spawned", "worker/0")[0].time_s - run.of("spawned", "worker/1")[0].time_s > 900
    assert run.of("spawned", "worker/0")[0]["pid"] > 0
    assert run.of("spawned", "worker/1")[0]["pid"] == 0
    assert "another machine" in diagnostics.waits_in(0)
    assert 0.0 < run.clock_error_s < 1.0


def test_the_nodes_say_what_their_tasks_use(launch, nodes):
    nodes[1].facts["boot_id"] = "another machine"
    with launch(EMIT + "say('step', global_step=1)\nsignal.pause()\n") as cluster:
        cluster.start()
        cluster.wait_for("step", at_least=2)
        assert cluster.pids["worker/1"] == 0
        for use in (cluster.use(proportional=True), cluster.use()):
            assert sorted(use) == ["worker/0", "worker/1"]
            assert all(one.processor_s >= 0.0 and one.peak_mib > 1.0 for one in use.values())
        assert all(one.proportional_mib == 0.0 for one in use.values())
        cluster.end("worker/1")
        assert list(cluster.use()) == ["worker/0"]


def test_a_zygote_that_died_on_a_node_is_started_again(launch, nodes):
    agent = nodes[1].agent.agent
    first = agent.zygotes["none"]
    first.wait_ready(agent.deadlines)
    first.process.kill()
    first.process.wait()
    with launch("") as cluster:
        cluster.start()
        cluster.complete()
    assert agent.zygotes["none"] is not first
    (died,) = agent.deaths()
    assert died.startswith("none: the zygote was killed by signal 9")


def test_a_zygote_that_dies_at_once_is_not_started_for_ever(launch, nodes):
    agent = nodes[1].agent.agent
    start = agent.how["none"]

    def dead(**given):
        zygote = start(**given)
        zygote.wait_ready(agent.deadlines)
        zygote.process.kill()
        zygote.process.wait()
        return zygote

    agent.how["none"] = dead
    agent.zygotes["none"].process.kill()
    agent.zygotes["none"].process.wait()
    with pytest.raises(HarnessError, match="second in a row"), launch("") as cluster:
        cluster.start()


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
        (Lost, r"node 127.0.0.2 \(11111111\) left the Ray cluster"),
        (MemoryFull, r"node 127.0.0.2 \(11111111\): Ray's memory monitor killed the agent"),
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


def test_a_task_whose_node_was_ended_starts_elsewhere_with_all_others(launch, nodes):
    body = 'say("config", tf_config=os.environ["TF_CONFIG"])\nsignal.pause()\n'
    with launch(EMIT + body) as cluster:
        cluster.start()
        cluster.wait_for("config", at_least=2)
        directory = Path(nodes[1].facts["directory"])
        before = dict(cluster.plan.addresses)
        cluster.end_node("worker/1", fault="node-down")
        exited = cluster.wait_exit("worker/1")["worker/1"]
        assert (exited["code"], exited["signal"]) == (None, signal.SIGKILL)
        assert exited["node"] == nodes[1].name
        assert exited["ended_by_harness"]
        assert cluster.run().of("fault_started", "worker/1")[0]["fault"] == "node-down"
        assert not directory.exists()
        with pytest.raises(HarnessError, match=r"worker/1 cannot start .* while worker/0 run"):
            cluster.start("worker/1")
        cluster.end("worker/0")
        cluster.start()
        after = dict(cluster.plan.addresses)
        assert after["worker/0"] == before["worker/0"]
        assert after["worker/1"].startswith(f"{nodes[0].ip}:")
        assert after["worker/1"] != after["worker/0"]
        config = wait_until("both", lambda: second_configs(cluster), 20)
        assert [json.loads(c)["cluster"]["worker"] for c in config] == [list(after.values())] * 2


def second_configs(cluster: Cluster) -> list[str] | None:
    """Return TF_CONFIG of both tasks since the second start."""
    cluster.alive()
    found = [e["tf_config"] for e in cluster.run().of("config")]
    return found[2:] if len(found) == 4 else None


def test_a_task_that_starts_elsewhere_gets_gpus_there(launch, nodes):
    body = 'say("gpus", visible=os.environ["CUDA_VISIBLE_DEVICES"])\nsignal.pause()\n'
    with launch(EMIT + body, gpus=2) as cluster:
        cluster.start()
        cluster.wait_for("gpus", at_least=2)
        cluster.end_node("worker/1", fault="node-down")
        cluster.wait_exit("worker/1")
        cluster.end("worker/0")
        cluster.start()
        wait_until("both", lambda: cluster.alive() and len(cluster.run().of("gpus")) == 4, 20)
        seen = [(e.task, e["visible"]) for e in cluster.run().of("gpus")]
    here, there = (",".join(f"{node.ip}/{i}" for i in range(2)) for node in nodes)
    assert sorted(seen[:2]) == [("worker/0", here), ("worker/1", there)]
    assert sorted(seen[2:]) == [("worker/0", here), ("worker/1", here)]


def test_only_workers_get_gpus(nodes, tmp_path):
    found = Nodes(sys.executable, str(tmp_path), "meta", Deadlines(), nodes)
    placed = Placement("001-run", found).reserve(needs("ps/0", *WORKERS), 1)
    assert set(placed.gpus) == set(WORKERS)
    (_, group), *_ = placed.reserved
    assert [bundle.get("GPU") for bundle in group.bundles] == [None, 1.0, 1.0]
    placed.release()
    without = Placement("002-run", found).reserve(needs("ps/0", *WORKERS), 0)
    assert without.gpus == dict.fromkeys(WORKERS, "-1")
    assert all("GPU" not in bundle for bundle in without.reserved[0][1].bundles)
    without.release()


@pytest.mark.parametrize(
    ("of_nodes", "workers", "each", "placed", "enough"),
    [
        ((1, 1), 2, 1, "spread", True),
        ((2, 0), 2, 1, "spread", True),
        ((1, 0), 2, 1, "spread", False),
        ((0, 0), 1, 1, "spread", False),
        ((3, 1), 2, 2, "spread", False),  # the GPUs of a worker are on one node
        ((2, 2), 2, 2, "spread", True),
        ((2, 0), 2, 1, "strict-spread", False),
        ((2, 1), 2, 1, "strict-spread", True),
    ],
)
def test_each_worker_needs_its_gpus_on_one_node(
    fake_engine, nodes, of_nodes, workers, each, placed, enough
):
    for node, count in zip(nodes, of_nodes, strict=True):
        node.gpus = count
    found = Nodes(sys.executable, "", "meta", Deadlines(), nodes)
    engine = ray_on(fake_engine, placement=placed, nodes=found)
    assert engine.has_gpus(workers, each) is enough
    assert engine.gpu_count == sum(of_nodes)
    assert engine.node_count == len(of_nodes)


@pytest.mark.parametrize(
    ("of_nodes", "placed", "tasks", "gpus"),
    [
        ((1, 1), "spread", WORKERS, 1),
        ((2, 0), "spread", WORKERS, 0),
        ((2, 1), "spread", WORKERS, 1),
        ((2, 1), "spread", (*WORKERS, "worker/2"), 0),
        ((2, 2), "spread", (*WORKERS, "worker/2"), 1),
        ((2, 1), "spread", ("ps/0", *WORKERS), 0),  # a server is placed in turn as well
        ((1, 1), "strict-spread", WORKERS, 1),
        ((2, 0), "strict-spread", WORKERS, 0),
    ],
)
def test_a_task_that_is_alone_leaves_the_others_gpus_on_any_nodes(
    fake_engine, nodes, of_nodes, placed, tasks, gpus
):
    for node, count in zip(nodes, of_nodes, strict=True):
        node.gpus = count
    found = Nodes(sys.executable, "", "meta", Deadlines(), nodes)
    engine = ray_on(fake_engine, placement=placed, nodes=found)
    assert engine.gpus_of_a_worker(needs(*tasks, alone=WORKERS[1])) == gpus


def test_a_task_has_a_node_of_its_own_if_it_must(nodes, tmp_path):
    found = Nodes(sys.executable, str(tmp_path), "meta", Deadlines(), nodes)
    placed = Placement("001-run", found).reserve(needs("chief/0", *WORKERS, alone=WORKERS[1]), 0)
    own = placed.by_task["worker/1"]
    assert [task for task, node in placed.by_task.items() if node is own] == ["worker/1"]
    assert len(set(placed.addresses.values())) == 3
    placed.release()
    nodes[1].ended = True
    with pytest.raises(HarnessError, match=r"node 127.0.0.1 \(00000000\) is the only node"):
        Placement("002-run", found).reserve(needs(*WORKERS, alone=WORKERS[1]), 0)


def test_strictly_spread_tasks_have_a_node_each(nodes, tmp_path):
    found = Nodes(sys.executable, str(tmp_path), "meta", Deadlines(), nodes)
    placed = Placement("001-run", found, strict=True)
    placed.reserve(needs(*WORKERS, alone=WORKERS[1]), 0)
    assert [placed.by_task[task] for task in ("worker/0", "worker/1")] == nodes
    assert [len(tasks) for tasks, _ in placed.reserved] == [2]
    placed.release()
    with pytest.raises(HarnessError, match="3 tasks need as many nodes, and the Ray cluster has 2"):
        Placement("002-run", found, strict=True).reserve(needs(*WORKERS, "worker/2"), 0)


def test_a_command_that_does_not_end_the_node_is_an_error_with_what_it_said(nodes, tmp_path):
    found = Nodes(sys.executable, str(tmp_path), "meta", Deadlines().scaled(0.001), nodes)
    with pytest.raises(HarnessError, match=r"the end of node 127.0.0.2 .*; ssh: no route"):
        found.end(nodes[1], lambda _: "ssh: no route")
    assert found.live == nodes


def test_the_users_command_gets_the_address_of_the_node(fake_engine, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    engine = ray_on(fake_engine, kill_node="sh -c 'echo gone {ip} >&2; exit 3'")
    assert engine.why_no_node_ends == ""
    said = engine._end("10.1.2.3")
    assert said.endswith("exit 3, it said gone 10.1.2.3")
    with pytest.raises(HarnessError, match=r"--kill-node: .*no-such-program"):
        ray_on(fake_engine, kill_node="no-such-program {ip}")._end("10.1.2.3")


def test_no_node_is_ended_without_a_command_or_by_several_processes(fake_engine, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    with pytest.raises(Unsupported, match="need --engine ray: --kill-node is not given"):
        ray_on(fake_engine).place("001-run", needs("worker/0", alone="worker/0"))
    with pytest.raises(Unsupported, match="need --engine ray: the tasks run on this machine"):
        fake_engine.place("001-run", needs("worker/0", alone="worker/0"))
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert "without -n" in ray_on(fake_engine, kill_node="true {ip}").why_no_node_ends


def ray_on(fake_engine, **given):
    taken = ("python", "flavors", "deadlines", "directory", "progress")
    own = {name: getattr(fake_engine, name) for name in taken}
    return RayEngine(**own, **given, network=ray_engine.network("a:1"), session="meta")


def test_disks_and_hosts_of_their_own_are_unsupported(fake_engine):
    for hosts, disk in ((True, False), (False, True)):
        with pytest.raises(Unsupported, match="of their own need namespaces"):
            ray_on(fake_engine).place("001-run", needs("worker/0", on_hosts=hosts, on_disk=disk))


@pytest.fixture
def check(nodes, fake_engine, monkeypatch, tmp_path):
    """Return the check of the two nodes; this process does not end with its parent."""
    monkeypatch.setattr(NodeAgent, "end_with_node", lambda _: None)
    return lambda python=sys.executable, shared=str(tmp_path): Nodes(
        python, shared, "meta", fake_engine.deadlines
    ).check(nodes)


def test_nodes_that_have_everything_pass(check, nodes, tmp_path):
    check()
    assert [node.clock.error_s for node in nodes] == [0.0, 0.0]
    assert list(tmp_path.glob(".tfdc-*")) == []


def test_a_node_without_the_interpreter_is_refused(check):
    with pytest.raises(BadInput, match=r"node 127.0.0.1 \(00000000\) has no /no/python; --python"):
        check("/no/python")


def test_a_node_with_another_checkout_is_refused(check, monkeypatch):
    monkeypatch.setattr("suite.harness.engines.node_agent.ROOT", Path("/elsewhere"))
    with pytest.raises(BadInput, match="imports the suite from /elsewhere, this process from"):
        check()


def test_a_directory_that_a_node_does_not_see_is_refused(check, nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(nodes[1].agent.agent, "has", lambda *_: False)
    with pytest.raises(BadInput, match=r"node 127.0.0.2 \(11111111\) does not see what is written"):
        check()
    assert list(tmp_path.glob(".tfdc-*")) == []


def test_a_shared_directory_that_cannot_be_written_is_refused(check, tmp_path):
    with pytest.raises(BadInput, match=r"--shared-dir .*missing: cannot be written: No such file"):
        check(shared=str(tmp_path / "missing"))


REAL = {"engine": "ray", "ray_address": "a:1", "shared_dir": "/d"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ray_address": "a:1"}, "--ray-address a:1: only with --engine ray"),
        ({"shared_dir": "/d"}, "--shared-dir /d: only with --engine ray"),
        ({"placement": "spread"}, "--placement spread: only with --engine ray"),
        ({"kill_node": "k {ip}"}, "--kill-node k {ip}: only with --engine ray"),
        ({"engine": "ray", "ray_address": "a:1"}, "--ray-address a:1: needs --shared-dir"),
        ({"engine": "ray", "kill_node": "sh {ip}"}, "only with --ray-address; simulated nodes"),
        ({**REAL, "kill_node": "ssh host"}, "must have {ip}, which becomes the node's address"),
        ({**REAL, "kill_node": "no-such {ip}"}, "there is no program no-such"),
        ({**REAL, "kill_node": "sh '{ip}"}, "is no command: No closing quotation"),
    ],
)
def test_options_of_an_engine_need_it(given, message):
    with pytest.raises(BadInput, match=message):
        setup.check_engine_options(Settings(**given))


def test_without_ray_the_engine_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"Ray is not installed here; pip install -e '.\[ray\]'"):
        simulated_cluster.start_nodes(Deadlines())


def test_a_line_that_is_no_event_keeps_its_bytes():
    assert remote_init._shifted(b"garbage", 5.0) == b"garbage"
    moved = json.loads(remote_init._shifted(b'{"time_s": 7.5, "event": "step"}', 5.0))
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
        ray_connection.check_reachable(address)
