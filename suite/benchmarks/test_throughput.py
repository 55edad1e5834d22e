"""Throughput of each approach with each backend that can be requested, and the actual backend.

One figure is one fresh process or cluster, because differences between processes (memory layout,
thread placement) do not average out over the steps of one. The backends of a trainer are
interleaved. pytest-benchmark gets all step times, so --benchmark-json and --benchmark-compare work.
Reports read `measurements`.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from suite.benchmarks.recorded_clock import RecordedClock
from suite.benchmarks.time_budget import Results, interleaved, passes
from suite.benchmarks.training_runs import (
    Trained,
    common_collective,
    record_memory,
    require_requested_backend,
    timed,
    trained,
    unmet,
)
from suite.harness.core.case import Case
from suite.harness.metrics import interference
from suite.harness.metrics.throughput import timed_steps
from suite.harness.pytest_plugin.fixtures import WATCHED, case_of
from suite.harness.scenarios import base
from suite.harness.scenarios.base import Launch
from suite.harness.session.session import Launch as LaunchOf
from suite.harness.session.session import Session

CLOCK = RecordedClock()
# At most, by whether it is a benchmark run. A run of everything has no time for more.
PROCESSES, BUDGET_S = {True: 4, False: 1}, 13
DEVICES = (1, 2, 4)
# Of the grid. Every run measures each approach's own model from its document.
MODELS, WORKERS, BATCHES = ("cnn", "mlp", "mlp-10m", "mlp-50m"), (1, 2, 4), (32, 128)
PASSES = 2  # through workers and batches, so that the processes of a figure are minutes apart
# For asynchronous workers the number is global and steps are short. Steps that a worker makes
# before all are up do not count. Where a step aggregates gradients, each worker contributes one.
STEPS = {"synchronous": 36, "asynchronous": 400, "coordinated": 100}


def train(launch: Launch, **how: Any) -> Trained:
    """Train for as many steps as can be timed well in a few seconds."""
    row = launch.case.trainer
    kind = "coordinated" if base.coordinated(row) else "asynchronous"
    steps = STEPS["synchronous" if row.synchronous else kind]
    steps //= len(launch.engine.topology(row).workers) if row.aggregates else 1
    return trained(launch, steps, **how)


def by_backend(
    request: pytest.FixtureRequest, session: Session, launch: Launch
) -> dict[Case, Results[Trained]]:
    """Return the measurements of each backend of this test's trainer, interleaved.

    The first test that asks measures. All share the recorded state of the machine during the
    measurement.
    """
    own, name = launch.case, request.node.originalname
    tests = [i for i in request.session.items if i.path == request.path]
    asked = [case_of(i) for i in tests if getattr(i, "originalname", "") == name]
    cases = [c for c in asked if c and replace(c, backend=own.backend) == own]

    def measure() -> tuple[dict[Case, Results[Trained]], interference.Watch]:
        with interference.Watch(alone=session.timing_lock.held) as watch:
            results = interleaved(
                cases,
                lambda case: train(LaunchOf(session, case, launch.directory, name)),
                # A result of another backend is measured often enough under that backend's name.
                lambda case, one: bool(unmet(case, one.run.collective, session)),
                passes(PROCESSES[session.settings.full], BUDGET_S * len(cases)),
            )
        return results, watch

    key = (name, own.trainer.name, own.keras)
    results, request.node.stash[WATCHED] = session.outcomes.get(key, measure)
    return results


@pytest.mark.claim("mwms/communication", "mwms/local-overhead")
@pytest.mark.cases(backends="each", flavors="full", level="observed")
@pytest.mark.timing
@pytest.mark.benchmark(group="step time", timer=CLOCK)
def test_throughput(
    request: pytest.FixtureRequest,
    case: Case,
    launch: Launch,
    session: Session,
    record,
    benchmark: BenchmarkFixture,
) -> None:
    made = by_backend(request, session, launch)[case].get()
    measured = [timed(one.run) for one in made]
    for repeat, (one, steps) in enumerate(zip(made, measured, strict=True)):
        for metric, value, unit, better in (*steps.measurements(), *one.measurements()):
            record(metric, value, unit, better, repeat=repeat, collective=one.run.collective)
        record_memory(record, one, repeat=repeat, collective=one.run.collective)
    collective = common_collective(made)
    rates = [steps.examples_per_s for steps in measured if steps.examples_per_s is not None]
    benchmark.extra_info.update(
        collective=collective,
        workers=len(made[0].run.workers),
        **({"examples_per_s": median(rates)} if rates else {}),
    )
    # For --benchmark-group-by=param:backend etc.; pytest's own parameter is a single object.
    benchmark.params = {"trainer": case.trainer.name, "backend": case.backend, "keras": case.keras}
    times_s = [time_s for steps in measured for time_s in steps.times_s]
    benchmark.pedantic(CLOCK.replay, rounds=CLOCK.load(times_s))
    require_requested_backend(case, collective, session)


@pytest.mark.cases(flags=("model",), backends="each", flavors="first")
@pytest.mark.timing
@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_throughput_of_the_grid(
    case: Case, launch: Launch, session: Session, record, model: str
) -> None:
    """Measure each approach with a configurable model by backend, model, workers and batch."""
    for repeat, workers, batch in itertools.product(
        range(PASSES), WORKERS if case.distributed else (1,), BATCHES
    ):
        one = train(launch, workers=workers, model=model, batch_size=batch)
        columns = {"workers": workers, "variant": f"{model}, batch {batch}", "repeat": repeat}
        columns |= {"replicas": workers * case.trainer.devices, "collective": one.run.collective}
        for metric, value, unit, better in (
            *timed_steps(one.run).measurements(),
            *one.measurements(),
        ):
            record(metric, value, unit, better, **columns)
        record_memory(record, one, **columns)
        if workers > 1:  # one worker has no peer to reduce with
            require_requested_backend(case, one.run.collective, session)


@pytest.mark.claim("dtensor/scaling")
@pytest.mark.cases(families=("dtensor",))
@pytest.mark.timing
@pytest.mark.full
def test_scaling_over_devices(launch: Launch, record) -> None:
    """Keep the batch per replica; logical CPUs share the cores, so assert nothing."""
    for repeat in passes(PROCESSES[True], BUDGET_S):
        for devices in DEVICES:
            steps = timed_steps(train(launch, devices=devices).run)
            variant = f"{devices} devices" if devices > 1 else "1 device"
            columns = {"repeat": repeat, "variant": variant, "replicas": devices}
            for metric, value, unit, better in steps.measurements():
                record(metric, value, unit, better, **columns)
