"""Tests of sessions on a Ray cluster of this machine, with fake trainers; they need Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from reports.rundir import frame
from suite.harness.cluster import leaks
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import BadInput
from suite.harness.engines import ray_connection, simulated_cluster
from suite.meta import sessions
from suite.meta.sessions import pytest_arguments, run_pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray")  # the tests count Ray's processes on this machine
ENDS_S = 90  # Ray ends its nodes in seconds, but not on a busy machine
HELD = """
import os
from pathlib import Path
import pytest

@pytest.mark.cases(families=("single",))
def test_endless(launch, session, case):
    with launch(flags={"epochs": 100000, "steps-per-epoch": 5}) as cluster:
        cluster.start()
        cluster.wait_for("step")
        Path(os.environ["READY"]).write_text(session.engine.session)
        cluster.wait_for("never", within_s=60)
"""

NODE_DOWN = """
import pytest

@pytest.mark.cases(families=("mwms",))
def test_node_down(launch):
    with launch(alone="worker/1", flags={"epochs": 100000, "steps-per-epoch": 5}) as cluster:
        cluster.start()
        cluster.wait_for("step", "worker/1")
        before = cluster.plan.addresses["worker/1"]
        cluster.end_node("worker/1", fault="node-down")
        cluster.wait_exit("worker/1")
        cluster.end("worker/0")
        cluster.start()
        cluster.wait_for("step", "worker/1", attempt=1)
        assert cluster.plan.addresses["worker/1"].split(":")[0] != before.split(":")[0]

@pytest.mark.cases(families=("mwms",))
def test_after(launch, session):
    with launch(workers=3, flags={"epochs": 1, "steps-per-epoch": 5}) as cluster:
        cluster.start()
        cluster.complete()
        assert len({where.split(":")[0] for where in cluster.plan.addresses.values()}) == 3
"""


GPUS = """
import pytest

@pytest.mark.cases(families=("mwms",))
def test_gpus(launch, session, case):
    assert session.has_gpus(case)
    flags = {"epochs": 100000, "steps-per-epoch": 5}
    with launch(workers=6, flags=flags) as cluster:
        assert sorted(cluster.plan.gpus.values()) == ["0", "0", "0", "1", "1", "1"]
    with launch(workers=7, flags=flags) as cluster:
        assert set(cluster.plan.gpus.values()) == {"-1"}
    with launch(alone="worker/1", flags=flags) as cluster:
        cluster.start()
        cluster.wait_for("step", "worker/1")
        cluster.end_node("worker/1", fault="node-down")
        cluster.wait_exit("worker/1")
        cluster.end("worker/0")
        cluster.start()
        cluster.wait_for("step", "worker/1", attempt=1)
        assert set(cluster.plan.gpus.values()) <= {"0", "1"}
        assert len({address.split(":")[0] for address in cluster.plan.addresses.values()}) == 2
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ray")
    sessions.set_stage(directory)
    (directory / "test_held.py").write_text(HELD)
    (directory / "test_node.py").write_text(NODE_DOWN)
    (directory / "test_gpus.py").write_text(GPUS)
    return directory


def ray_processes() -> set[int]:
    """Return the processes of Ray's nodes on this machine."""
    names = ("raylet", "gcs_server")
    return {p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in names}


def test_verdicts_on_ray_are_those_of_this_machine(stage, tmp_path):
    before = ray_processes()
    common = ["--trainer", "single_process", "--keras", "tf_keras", "--seed", "1", "-q"]
    done = {}
    for engine in ("local", "ray"):
        where = ["--engine", engine, "--run-dir", str(tmp_path / engine)]
        done[engine] = run_pytest(stage, [*common, *where], before=["env"])
    runs = {engine: frame.load(tmp_path / engine) for engine in done}
    local, on_ray = (run.verdicts.set_index("test")["verdict"] for run in runs.values())
    assert len(on_ray) > 5, done["ray"].stdout + done["ray"].stderr
    assert on_ray.to_dict() == local.to_dict()
    assert set(runs["ray"].verdicts["engine"]) == set(runs["ray"].measurements["engine"]) == {"ray"}
    assert set(runs["local"].verdicts["engine"]) == {"local"}
    engine = runs["ray"].info["engine"]
    assert engine["name"] == "ray"
    assert len(engine["nodes"]) == simulated_cluster.SIMULATED_NODES
    assert {node["clock_error_s"] for node in engine["nodes"]} == {0.0}
    assert runs["ray"].info["leaks"] == []
    assert ray_processes() <= before


def held(stage: Path, ready: Path, *more: str) -> subprocess.Popen[str]:
    """Start a session with a test that does not end; return once its task has trained."""
    chosen = ["-q", "--engine", "ray", "--trainer", "single_process", "--keras", "tf_keras", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *pytest_arguments(stage, chosen, "test_held.py")],
        env={**sessions.environment(stage), "READY": str(ready)},
        cwd=stage,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until("the held session", lambda: ready.exists() and ready.read_text(), 120)
    return process


def test_killing_pytest_leaves_no_task_and_no_node(stage, tmp_path):
    before, left = ray_processes(), directories()
    process = held(stage, tmp_path / "ready")
    session = (tmp_path / "ready").read_text()
    assert leaks.processes(session)
    assert (
        len(ray_processes() - before) == simulated_cluster.SIMULATED_NODES + 2
    )  # the head's, and its GCS
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until("the tasks to end", lambda: not leaks.processes(session), ENDS_S)
    wait_until("the nodes to end", lambda: ray_processes() <= before, ENDS_S)
    wait_until("the links to end", lambda: not links(), ENDS_S)
    wait_until("the directories to end", lambda: directories() <= left, ENDS_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="nodes have networks of their own only for root")
def test_each_node_has_its_own_network():
    cluster = simulated_cluster.start_nodes(Deadlines())
    try:
        assert not cluster.shared_network
        assert len(links()) == 1
        head = cluster.address.partition(":")[0]
        found = {os.stat(f"/proc/{pid}/ns/net").st_ino for pid in raylets_of(head)}
        assert len(found) == simulated_cluster.SIMULATED_NODES + 1
    finally:
        cluster.end()
    wait_until("the links to end", lambda: not links(), ENDS_S)


def test_without_rights_the_nodes_share_the_network_of_this_machine():
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        sys.executable,
        str(simulated_cluster.START),
        "2",
        "0",
    ]
    if subprocess.run([*command[:3], "true"], check=False).returncode:
        pytest.skip("this machine has no user namespaces")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    answer = json.loads(done.stdout)
    assert not answer["address"].startswith("10.78.")
    assert "Operation not permitted" in answer["shared_network"]


def directories() -> set[Path]:
    """Return the directories of simulated nodes."""
    return set(Path("/tmp").glob("tfdc-ray-*"))


def links() -> list[str]:
    """Return the links to nodes' networks."""
    return [name for name in psutil.net_if_stats() if name.startswith("tfdc")]


def raylets_of(head: str) -> list[int]:
    found = psutil.process_iter(["name", "cmdline"])
    return [p.pid for p in found if p.info["name"] == "raylet" and head in str(p.info["cmdline"])]


def test_a_node_that_dies_is_named_and_nothing_is_left(stage, tmp_path):
    cluster = simulated_cluster.start_nodes(Deadlines())
    try:
        given = ["--ray-address", cluster.address, "--shared-dir", str(tmp_path)]
        process = held(stage, tmp_path / "ready", *given, "--run-dir", str(tmp_path / "run"))
        session = (tmp_path / "ready").read_text()
        lines = [
            psutil.Process(int(line.split()[1])).parents() for line in leaks.processes(session)
        ]
        # The task is a fork of the init process, which is a fork of its node's zygote.
        raylet = next(p for p in max(lines, key=len) if p.name() == "raylet")
        raylet.kill()
        output, _ = process.communicate(timeout=2 * ENDS_S)
        verdicts = frame.load(tmp_path / "run").verdicts
        assert list(verdicts["verdict"]) == ["harness_error"], output
        assert "left the Ray cluster" in verdicts["reason"][0]
        wait_until("the tasks to end", lambda: not leaks.processes(session), ENDS_S)
    finally:
        cluster.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only nodes with networks of their own can be ended")
def test_a_node_that_loses_power_is_replaced(stage, tmp_path):
    before, left = ray_processes(), directories()
    trainer = ["--trainer", "keras_multi_worker_mirrored", "--keras", "tf_keras", "-q"]
    where = ["--engine", "ray", "--run-dir", str(tmp_path / "run")]
    done = run_pytest(stage, [*trainer, *where], "test_node.py", before=["env"])
    run = frame.load(tmp_path / "run")
    assert list(run.verdicts["verdict"]) == ["passed"] * 2, done.stdout + done.stderr
    nodes = run.info["engine"]["nodes"]
    assert len(nodes) == simulated_cluster.SIMULATED_NODES + 1
    assert [node["ended_by_fault"] for node in nodes].count(True) == 1
    assert len({node["address"] for node in nodes}) == simulated_cluster.SIMULATED_NODES
    assert run.info["leaks"] == []
    assert ray_processes() <= before
    assert not links()
    assert directories() == left


KILL = """
import sys
import psutil

for process in psutil.process_iter(["name", "cmdline"]):
    words = process.info["cmdline"] or []
    if process.info["name"] == "raylet" and f"--node_ip_address={sys.argv[1]}" in words:
        process.kill()
sys.exit(255)  # as ssh does when the other side ends first
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="nodes have addresses of their own only for root")
def test_the_users_command_ends_a_node_of_a_cluster_that_exists(stage, tmp_path):
    run, output = session_with_kill_node(stage, tmp_path, "test_node.py", "-k", "node_down")
    assert list(run.verdicts["verdict"]) == ["passed"], output
    ended = [node["ended_by_fault"] for node in run.info["engine"]["nodes"]]
    assert sorted(ended) == [False, False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="nodes have addresses of their own only for root")
def test_workers_have_the_gpus_that_ray_has_reserved_for_them(stage, tmp_path):
    run, output = session_with_kill_node(stage, tmp_path, "test_gpus.py", gpus=2)
    assert list(run.verdicts["verdict"]) == ["passed"], output
    assert [node["gpus"] for node in run.info["engine"]["nodes"]] == [2, 2, 2]


def session_with_kill_node(
    stage: Path, directory: Path, test: str, *more: str, gpus: int = 0
) -> tuple[frame.RunFrames, str]:
    """Run a test on a cluster that exists, whose nodes a command ends; return run and output."""
    (directory / "kill.py").write_text(KILL)
    cluster = simulated_cluster.start_nodes(Deadlines(), gpus)
    try:
        given = ["--engine", "ray", "--ray-address", cluster.address]
        given += ["--shared-dir", str(directory), "--run-dir", str(directory / "run")]
        given += ["--kill-node", f"{sys.executable} {directory}/kill.py {{ip}}"]
        trainer = ["--trainer", "keras_multi_worker_mirrored", "--keras", "tf_keras", "-q"]
        done = run_pytest(stage, [*trainer, *given, *more], test, before=["env"])
        return frame.load(directory / "run"), done.stdout + done.stderr
    finally:
        cluster.end()


def test_a_connection_that_ray_refuses_is_one_line(monkeypatch):
    monkeypatch.setattr(ray_connection, "check_reachable", lambda _: None)
    module = ray_connection.ray()

    def refuse(**_):
        raise RuntimeError("Version mismatch: 2.9\nand more")

    monkeypatch.setattr(module, "init", refuse)
    with pytest.raises(BadInput, match=r"with Ray .*: Version mismatch: 2.9$"):
        ray_connection.connect("127.0.0.1:1", "none")


def test_too_few_nodes_are_refused(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_cluster, "SIMULATED_NODES", 1)
    cluster = simulated_cluster.start_nodes(Deadlines())
    try:
        given = ["--engine", "ray", "--ray-address", cluster.address, "--shared-dir", str(tmp_path)]
        common = ["--trainer", "single_process", "--keras", "tf_keras"]
        done = run_pytest(stage, [*given, *common], before=["env"])
    finally:
        cluster.end()
    assert done.returncode == 4
    assert "has 1 nodes with a processor, needs at least 2" in done.stdout + done.stderr
