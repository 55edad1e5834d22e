"""Tests of scaling's numbers, from clusters with known numbers."""

from __future__ import annotations

from typing import Any

import pytest

from reference_trainers import BY_NAME
from suite.benchmarks import test_scaling
from suite.benchmarks.scaling_metrics import communication_share, numbers
from suite.benchmarks.training_runs import Trained, record_memory
from suite.harness.core.history import Event, Run, in_order

TRAINER = BY_NAME["custom_loop_multi_worker_mirrored"]
EACH = 0.5  # seconds of a warm step


def cluster(memories_mib: dict[str, float], joined_s: float, cpu_s: float = 3.0) -> Trained:
    """Return a cluster whose first step ends 2 s after the workers join.

    Each worker's events are 0.1 s after those of the worker before it.
    """
    events = []
    for late, task in enumerate(memories_mib):
        times_s = {"spawned": 0.0, "joined": joined_s}
        reported = [Event(name, at, task, 0, {}) for name, at in times_s.items()]
        for step in range(1, 12):
            fields = {"step": step, "examples": 64}
            reported.append(Event("step", joined_s + 2.0 + EACH * (step - 1), task, 0, fields))
        moved = (Event(e.name, e.time_s + 0.1 * late, e.task, 0, e.data) for e in reported)
        events += list(moved)
    tasks = tuple(memories_mib)
    run = Run(TRAINER, tasks, tasks, "ring", "none", in_order(events))
    return Trained(run, cpu_s, memories_mib)


TWO = {"worker/0": 400.0, "worker/1": 420.0}


def found(*clusters: Trained) -> dict[str, float]:
    return {metric.removeprefix("scaling_"): value for metric, value, _, _ in numbers(clusters)}


def test_one_cluster_s_numbers():
    metrics = found(cluster(TWO, joined_s=1.0))
    assert metrics == {
        "step_s": pytest.approx(EACH),
        "step_p90_s": pytest.approx(EACH),
        "step_p99_s": pytest.approx(EACH),
        "examples_per_s": pytest.approx(2 * 64 / EACH),
        "cpu_s": 3.0,
        "formation_s": pytest.approx(1.0),
        "first_step_s": pytest.approx(2.0),
        "tracing_s": pytest.approx(2.0 - EACH),
        "peak_memory_mib": 420.0,
    }


def test_concurrent_clusters_add_up_and_the_slowest_forms_last():
    metrics = found(cluster({"worker/0": 400.0}, 1.0), cluster({"worker/0": 500.0}, 1.5, cpu_s=4.0))
    assert metrics["examples_per_s"] == pytest.approx(2 * 64 / EACH)
    assert metrics["formation_s"] == pytest.approx(1.5)
    assert (metrics["cpu_s"], metrics["peak_memory_mib"]) == (7.0, 500.0)


def test_communication_share_is_the_extra_time_of_a_step():
    assert communication_share(apart_s=0.3, together_s=0.4) == pytest.approx(0.25)
    assert communication_share(apart_s=0.4, together_s=0.4) == 0


def test_memory_is_reported_for_each_task():
    rows: list[tuple[Any, ...]] = []

    def record(*row: Any, **columns: Any) -> None:
        rows.append((*row, columns))

    record_memory(record, cluster(TWO, 1.0), variant="mlp, batch 32", repeat=1)
    record_memory(record, cluster({"ps/0": 210.0}, 1.0), repeat=0)
    assert rows == [
        ("task_peak_memory_mib", 400.0, "MiB", {"variant": "mlp, batch 32, worker/0", "repeat": 1}),
        ("task_peak_memory_mib", 420.0, "MiB", {"variant": "mlp, batch 32, worker/1", "repeat": 1}),
        ("task_peak_memory_mib", 210.0, "MiB", {"variant": "ps/0", "repeat": 0}),
    ]


@pytest.mark.parametrize(
    ("nodes", "weak", "strong"),
    [
        (1, [1, 2, 4], [2, 4]),
        (3, [1, 2, 4], [2, 4]),
        (6, [1, 2, 4, 6], [2, 4]),
        (8, [1, 2, 4, 8], [2, 4, 8]),
        (20, [1, 2, 4, 8, 16, 20], [2, 4, 8, 16]),
    ],
)
def test_workers_scale_to_all_nodes(nodes: int, weak: list[int], strong: list[int]):
    settings = test_scaling.weak_and_strong(nodes)
    found = {"weak": [], "strong": []}
    for setting in settings:
        found[setting.scaling].append(setting.workers)
    assert found == {"weak": weak, "strong": strong}
    for setting in settings:
        workers = setting.workers if setting.scaling == "strong" else 1
        assert setting.batch * workers == test_scaling.BATCH
