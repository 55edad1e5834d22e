"""Cost of more workers: time, memory and files of the tasks and of the harness, for 2 to 64."""

from __future__ import annotations

import time

import pytest

from suite.benchmarks import startup_ways
from suite.benchmarks.training_runs import trained
from suite.harness.scenarios.base import model_of
from suite.harness.session.session import Launch

WORKERS = {"fork": (2, 8, 16, 32, 64), "exec": (2, 4)}  # plain processes share no pages
STEPS = 5


@pytest.mark.cases(families=("mwms",), flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_cost_of_many_workers(launch: Launch, record) -> None:
    """Require that an all-reduce has the right value, and record what a cluster costs."""
    for workers in WORKERS[launch.engine.spawn]:
        columns = {"workers": workers, "variant": launch.engine.spawn}
        formed = startup_ways.by_harness(launch, workers)
        for metric, value in formed.measurements():
            record(metric, value, "s", "lower", **columns)
        before, begin_s = launch.engine.harness_use(), time.monotonic()
        one = trained(launch, STEPS, workers=workers, model=model_of(launch.case.trainer))
        after, whole_s = launch.engine.harness_use(), time.monotonic() - begin_s
        record("cluster_trained_s", whole_s, "s", "lower", **columns)
        for metric, value, unit, better in one.measurements():
            record(metric, value, unit, better, **columns)
        written = one.run.directory.glob("*.jsonl")
        event_kib = sum(path.stat().st_size for path in written) / 1024
        record("cluster_events_kib", event_kib, "KiB", "lower", **columns)
        used_s = after.processor_s - before.processor_s
        record("harness_processor_s", used_s, "s", "lower", **columns)
        grown_mib = max(0.0, after.memory_mib - before.memory_mib)
        record("harness_memory_growth_mib", grown_mib, "MiB", "lower", **columns)
