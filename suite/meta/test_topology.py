"""Tests of `topology`: all tasks get the same cluster specification, and each its own place."""

from __future__ import annotations

import json

import pytest

from suite.harness.core.errors import BadInput
from suite.harness.core.topology import ROLE_VARIABLES, Topology

PS = Topology((("ps", 2), ("worker", 2)))
WORKERS = Topology((("worker", 2),))


def addresses(topology: Topology) -> dict[str, str]:
    return {task: f"127.0.0.1:{2222 + i}" for i, task in enumerate(topology.tasks)}


def tf_config(topology: Topology, task: str) -> dict:
    return json.loads(topology.environment("tf_config", task, addresses(topology))["TF_CONFIG"])


def test_tasks_are_named_by_job_and_index():
    assert PS.tasks == ("ps/0", "ps/1", "worker/0", "worker/1")


def test_only_chief_and_workers_train():
    topology = Topology((("worker", 2), ("chief", 1), ("evaluator", 1)))
    assert topology.workers == ("chief/0", "worker/0", "worker/1")
    assert PS.workers == ("worker/0", "worker/1")


def test_chief_of_parameter_servers_coordinates():
    topology = Topology((("chief", 1), ("ps", 1), ("worker", 2)))
    assert topology.workers == ("worker/0", "worker/1")
    assert topology.with_workers(3).jobs == (("chief", 1), ("ps", 1), ("worker", 3))


def test_workers_run_the_loop_unless_a_chief_coordinates():
    coordinated = Topology((("chief", 1), ("ps", 1), ("worker", 2)))
    assert coordinated.drivers == ("chief/0",)
    assert coordinated.with_workers(3).drivers == ("chief/0",)
    for topology in (PS, WORKERS, Topology(), Topology((("chief", 1), ("worker", 1)))):
        assert topology.drivers == topology.workers


def test_single_process_is_worker_0_without_variables():
    alone = Topology()
    assert alone.tasks == alone.workers == ("worker/0",)
    assert alone.environment("tf_config", "worker/0", {}) == {}
    assert alone.arguments("host_flags", "worker/0", {}) == []
    assert alone.with_workers(7) == alone


def test_tf_config_has_one_cluster_and_each_task_s_own_place():
    configs = {task: tf_config(WORKERS, task) for task in WORKERS.tasks}
    cluster = {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]}
    assert [config["cluster"] for config in configs.values()] == [cluster, cluster]
    assert configs["worker/1"]["task"] == {"type": "worker", "index": 1}


def test_evaluator_sees_the_cluster_but_is_no_member():
    topology = Topology((("worker", 1), ("evaluator", 1)))
    config = tf_config(topology, "evaluator/0")
    assert config["cluster"] == {"worker": ["127.0.0.1:2222"]}
    assert config["task"] == {"type": "evaluator", "index": 0}


def test_host_flags_are_those_of_the_document():
    assert PS.arguments("host_flags", "worker/1", addresses(PS)) == [
        "--ps_hosts=127.0.0.1:2222,127.0.0.1:2223",
        "--worker_hosts=127.0.0.1:2224,127.0.0.1:2225",
        "--job_name=worker",
        "--task_index=1",
    ]
    assert PS.environment("host_flags", "worker/1", addresses(PS)) == {}


def test_dtensor_clients_get_their_number_and_all_addresses():
    assert WORKERS.environment("dtensor", "worker/1", addresses(WORKERS)) == {
        "DTENSOR_CLIENT_ID": "1",
        "DTENSOR_JOB_NAME": "worker",
        "DTENSOR_JOBS": "127.0.0.1:2222,127.0.0.1:2223",
    }


@pytest.mark.parametrize("role", ["tf_config", "dtensor"])
def test_every_role_variable_is_known_to_the_launcher(role: str):
    assert set(WORKERS.environment(role, "worker/0", addresses(WORKERS))) <= set(ROLE_VARIABLES)


def test_the_number_of_workers_can_be_chosen():
    assert PS.with_workers(3).jobs == (("ps", 2), ("worker", 3))
    chief = Topology((("chief", 1), ("worker", 1)))
    assert len(chief.with_workers(4).workers) == 4
    assert chief.with_workers(1).tasks == ("chief/0",)
    assert chief.with_workers(1).with_workers(2).workers == ("chief/0", "worker/0")


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ((("worker", 0),), "at least 1 task of job worker, not 0"),
        ((("wroker", 1),), "unknown job 'wroker'"),
        ((("chief", 2),), "one chief, not 2"),
        ((("worker", 1), ("worker", 2)), "named twice"),
        ((("ps", 2),), "nothing trains"),
    ],
)
def test_an_impossible_cluster_is_refused_in_one_line(jobs: tuple, message: str):
    with pytest.raises(BadInput, match=message) as refused:
        Topology(jobs)
    assert "\n" not in str(refused.value)


def test_no_workers_are_refused():
    with pytest.raises(BadInput, match="at least 1 worker, not 0"):
        WORKERS.with_workers(0)


def test_unknown_task_or_role_is_an_error():
    with pytest.raises(ValueError, match="worker/2 is not in this cluster"):
        WORKERS.environment("tf_config", "worker/2", addresses(WORKERS))
    with pytest.raises(ValueError, match="unknown role 'flags'"):
        WORKERS.environment("flags", "worker/0", addresses(WORKERS))
