"""Cost of events: a step with the observer's hooks against one of the same process without them.

The observer reports as for a program of a user. Of the suite's own trainers it also reads the loss
and the size of each batch of `Model.fit`, which the runs here leave out.

The hooks are put in and taken out every few steps: see programs/timed_trainer.py. A ratio is the
median over pairs of adjacent stretches. The interval is over processes, because more steps in the
same process would not show the variation between processes. Two processes that take turns would
differ by more than the hooks cost.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest

from reference_trainers import OBSERVER_FLAGS
from suite.harness.core.history import Run
from suite.harness.metrics.bootstrap import mean_ratio
from suite.harness.scenarios import base
from suite.harness.scenarios.base import Launch

PROCESSES = 10
PAIRS = 30  # of stretches, in each process
STEPS = {True: 40, False: 200}  # of a stretch, with Keras or without: a fraction of a second
AT_MOST = 1.01


def timed_run(launch: Launch) -> Run:
    """Run one process, in which stretches with hooks and without them alternate."""
    trainer = launch.case.trainer
    own = ("program", "stretch")
    timed = base.program(launch, "timed_trainer", flags=(*trainer.flags, *own), observed=True)
    steps = STEPS[trainer.keras]
    size: dict[str, Any] = {"epochs": 2 * PAIRS + 1, "steps_per_epoch": steps}
    work = base.work(launch, model=trainer.model or None, **size)
    flags = {**work, "program": trainer.program, "stretch": steps}
    # The observer takes those flags, and would report more.
    flags = {name: value for name, value in flags.items() if name not in OBSERVER_FLAGS}
    return base.complete(launch, timed, workers=1, flags=flags)


def per_step(run: Run, with_events: bool, clock: str) -> np.ndarray:
    """Return the seconds per step of every stretch, in order."""
    times = [e[clock] / e["steps"] for e in run.of("timed") if e["with_events"] is with_events]
    assert len(times) >= PAIRS - 1, f"only {len(times)} stretches were timed"
    return np.array(times[: PAIRS - 1])


def check_events(run: Run, steps: int) -> None:
    """Require events of the steps with hooks, and none of those without."""
    numbers = [e["step"] for e in run.of("step")]
    stretches = [(number - 1) // steps % 4 in (0, 1) for number in numbers]
    assert all(stretches), "a step without hooks has events"
    assert len(numbers) >= PAIRS * steps, f"only {len(numbers)} steps have events"


@pytest.mark.cases(families=("single", "ps1"), events=("step",))
@pytest.mark.timing
@pytest.mark.long
def test_events_cost_at_most_one_percent(launch: Launch, record) -> None:
    """Judge by the wall clock; CPU time, recorded as well, is less affected by other processes."""
    runs = [timed_run(launch) for _ in range(PROCESSES)]
    for run in runs:
        check_events(run, STEPS[launch.case.trainer.keras])
    found = {}
    for clock in ("wall_s", "cpu_s"):
        ratios = []
        for repeat, run in enumerate(runs):
            with_events, without = per_step(run, True, clock), per_step(run, False, clock)
            ratios.append(median(with_events / without))
            for variant, times in (("with", with_events), ("without", without)):
                columns = {"variant": f"{variant} events", "repeat": repeat, "workers": 1}
                record(f"event_cost_step_{clock}", median(times), "s", "lower", **columns)
        found[clock] = mean_ratio(ratios)
        for name, value in found[clock].named(f"event_cost_ratio_{clock[:-2]}"):
            record(name, value, "1", "lower", workers=1)
    assert found["wall_s"].estimate <= AT_MOST, f"times a step without events: {found}"
