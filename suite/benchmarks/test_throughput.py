"""How fast each approach trains with each backend that can be asked for, and which it got.

One figure is one fresh process or cluster: what differs from process to process (memory layout,
thread placement) does not average out over the steps of one. pytest-benchmark gets all step times,
so --benchmark-json and --benchmark-compare work; reports read `measurements`.
"""

from __future__ import annotations

import itertools
from statistics import median
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from suite.benchmarks.passes import passes
from suite.benchmarks.training import Trained, record_memory, trained
from suite.harness import backends, staging
from suite.harness.cases import Case
from suite.harness.errors import Unsupported
from suite.harness.measurement import RecordedClock, timed_steps
from suite.harness.session import Session
from suite.harness.staging import Launch

CLOCK = RecordedClock()
# At most, by whether it is a benchmark run: one of everything has no time.
PROCESSES, BUDGET_S = {True: 4, False: 1}, 20
DEVICES = (1, 2, 4)
# Of the grid; the documents' own models of each approach are what every run measures.
MODELS, WORKERS, BATCHES = ("cnn", "mlp", "mlp-10m", "mlp-50m"), (1, 2, 4), (32, 128)
PASSES = 2  # through workers and batches, so that each figure has processes that are minutes apart
# Of asynchronous workers the number is global, and a step short; what one does before all are up
# does not count. Where a step aggregates gradients it is one of each worker.
STEPS = {"synchronous": 36, "asynchronous": 400, "coordinated": 100}


def measured(launch: Launch, **how: Any) -> Trained:
    """Train for as many steps as can be timed well in a few seconds."""
    row = launch.case.trainer
    kind = "coordinated" if staging.coordinated(row) else "asynchronous"
    steps = STEPS["synchronous" if row.synchronous else kind]
    steps //= len(launch.engine.topology(row).workers) if row.aggregates else 1
    return trained(launch, steps, **how)


def must_be_what_was_asked(case: Case, collective: str, session: Session) -> None:
    """Unsupported when another implementation did the work under the requested name."""
    reason = backends.unmet(case.backend, collective, session.has_gpus(case))
    if reason:
        raise Unsupported(reason)


@pytest.mark.claim("mwms/communication", "mwms/local-overhead")
@pytest.mark.cases(events=("step",), backends="each", flavours="full")
@pytest.mark.timing
@pytest.mark.benchmark(group="step time", timer=CLOCK)
def test_throughput(
    case: Case, launch: Launch, session: Session, record, benchmark: BenchmarkFixture
) -> None:
    made = []
    for _ in passes(PROCESSES[session.settings.full], BUDGET_S):
        made.append(measured(launch))
        # What is another backend in truth is measured often enough under that one's name.
        if backends.unmet(case.backend, made[0].run.collective, session.has_gpus(case)):
            break
    timed = [timed_steps(one.run) for one in made]
    for repeat, (one, steps) in enumerate(zip(made, timed, strict=True)):
        for metric, value, unit, better in (*steps.measurements(), *one.measurements()):
            record(metric, value, unit, better, repeat=repeat, collective=one.run.collective)
        record_memory(record, one, repeat=repeat, collective=one.run.collective)
    (collective,) = {one.run.collective for one in made}
    benchmark.extra_info.update(
        collective=collective,
        workers=len(made[0].run.workers),
        examples_per_s=median(steps.examples_per_s for steps in timed),
    )
    # For --benchmark-group-by=param:backend and the like; pytest's own parameter is one object.
    benchmark.params = {"trainer": case.trainer.name, "backend": case.backend, "keras": case.keras}
    times_s = [time_s for steps in timed for time_s in steps.times_s]
    benchmark.pedantic(CLOCK.replay, rounds=CLOCK.load(times_s))
    must_be_what_was_asked(case, collective, session)


@pytest.mark.cases(events=("step",), flags=("model",), backends="each", flavours="first")
@pytest.mark.timing
@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_throughput_of_the_grid(
    case: Case, launch: Launch, session: Session, record, model: str
) -> None:
    """Each approach whose model can be chosen, by backend, model, workers and batch of a worker."""
    for repeat, workers, batch in itertools.product(
        range(PASSES), WORKERS if case.distributed else (1,), BATCHES
    ):
        one = measured(launch, workers=workers, model=model, batch_size=batch)
        columns = {"workers": workers, "variant": f"{model}, batch {batch}", "repeat": repeat}
        columns |= {"replicas": workers * case.trainer.devices, "collective": one.run.collective}
        for metric, value, unit, better in (
            *timed_steps(one.run).measurements(),
            *one.measurements(),
        ):
            record(metric, value, unit, better, **columns)
        record_memory(record, one, **columns)
        if workers > 1:  # one has nobody to reduce with
            must_be_what_was_asked(case, one.run.collective, session)


@pytest.mark.claim("dtensor/scaling")
@pytest.mark.cases(families=("dtensor",))
@pytest.mark.timing
@pytest.mark.full
def test_scaling_over_devices(launch: Launch, record) -> None:
    """A replica keeps its batch; logical CPUs share the cores, so nothing is asserted."""
    for repeat in passes(PROCESSES[True], BUDGET_S):
        for devices in DEVICES:
            steps = timed_steps(measured(launch, devices=devices).run)
            columns = {"repeat": repeat, "variant": f"{devices} devices", "replicas": devices}
            for metric, value, unit, better in steps.measurements():
                record(metric, value, unit, better, **columns)
