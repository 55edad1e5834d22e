"""Cost of events: a step with events against one without events and without fetching the loss.

The observer reports as for a program of a user. Of the suite's own trainers it also reads the loss
and the size of each batch of `Model.fit`, which the runs here leave out.

Both train in separate processes and alternate, some steps each: see programs/timed_trainer.py. A
ratio is the median of one such pair, of each turn to the adjacent turn of the other. The interval
is over pairs, because more steps in the same processes would not show the variation between
processes.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from reference_trainers import OBSERVER_FLAGS
from suite.harness.core.history import Run
from suite.harness.metrics.bootstrap import mean_ratio
from suite.harness.scenarios import base, small_programs
from suite.harness.scenarios.base import Launch

PAIRS = 10
STRETCHES = 24
STEPS = {True: 25, False: 100}  # of a stretch, with Keras or without: a fraction of a second
AT_MOST = 1.01


def pair(launch: Launch, number: int) -> tuple[Run, Run]:
    """Run one process with events and one without; the first turn alternates between pairs."""
    trainer = launch.case.trainer
    own = ("program", "stretch", "turns", "first", "silent")
    timed = small_programs.program(launch, "timed_trainer", flags=(*trainer.flags, *own))
    steps = STEPS[trainer.keras]
    size: dict[str, Any] = {"epochs": STRETCHES + 1, "steps_per_epoch": steps}
    work = base.work(launch, model=trainer.model or None, **size)
    turns = launch.directory / f"turns-{number}"
    how = {**work, "program": trainer.program, "stretch": steps, "turns": turns}
    if trainer.plain:  # the observer reports for it, and takes these flags
        how = {name: value for name, value in how.items() if name not in OBSERVER_FLAGS}
    reporting, silent = (
        launch(row, workers=1, flags={**how, "silent": quiet, "first": first})
        for row, quiet, first in (
            (replace(timed, observed=trainer.is_observed), False, number % 2 == 0),
            (timed, True, number % 2 == 1),
        )
    )
    with reporting, silent:
        reporting.start()
        silent.start()
        # The silent one first: reading the other's events while they come would take its CPU.
        without_events = silent.complete()
        return reporting.complete(), without_events


def per_step(run: Run, with_events: bool, clock: str) -> np.ndarray:
    """Return the seconds per step of every stretch, in order."""
    times = [e[clock] / e["steps"] for e in run.of("timed") if e["with_events"] is with_events]
    assert len(times) >= STRETCHES - 1, f"only {len(times)} stretches were timed"
    return np.array(times[: STRETCHES - 1])


@pytest.mark.cases(families=("single", "ps1"), events=("step",))
@pytest.mark.timing
@pytest.mark.long
def test_events_cost_at_most_one_percent(launch: Launch, record) -> None:
    """Judge by the wall clock; CPU time, recorded as well, is less affected by other processes."""
    pairs = [pair(launch, number) for number in range(PAIRS)]
    assert not any(silent.of("step") for _, silent in pairs), "a run without events has events"
    found = {}
    for clock in ("wall_s", "cpu_s"):
        ratios = []
        for repeat, (reporting, silent) in enumerate(pairs):
            with_events, without = per_step(reporting, True, clock), per_step(silent, False, clock)
            ratios.append(median(with_events / without))
            for variant, times in (("with", with_events), ("without", without)):
                columns = {"variant": f"{variant} events", "repeat": repeat, "workers": 1}
                record(f"event_cost_step_{clock}", median(times), "s", "lower", **columns)
        found[clock] = mean_ratio(ratios)
        for name, value in found[clock].named(f"event_cost_ratio_{clock[:-2]}"):
            record(name, value, "1", "lower", workers=1)
    assert found["wall_s"].estimate <= AT_MOST, f"times a step without events: {found}"
