"""Tests of what counts as growth: samples after the first epoch, if there are some."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reference_trainers import BY_NAME
from suite.harness.checks import accounting
from suite.harness.core.errors import CheckFailed
from suite.harness.core.history import Event, Run
from suite.harness.metrics import growth

TASK = "worker/0"


def run_with(threads: Mapping[int, int], *ends: float, event: str = "epoch") -> Run:
    """Return a run with this number of threads after each step, and an event at each end."""
    looks = [
        Event("resources", float(step), TASK, 0, {"step": step, "threads": number})
        for step, number in threads.items()
    ]
    marks = [Event(event, end, TASK, 0, {"epoch": n}) for n, end in enumerate(ends, start=1)]
    return Run(BY_NAME["single_process"], (TASK,), (TASK,), "none", "none", (*looks, *marks))


STARTED_BY_EVALUATION = {5: 32, 10: 33, 20: 43, 40: 43}
STARTED_BY_EACH_EPOCH = {5: 32, 10: 33, 20: 43, 40: 53}
STARTED_BY_STEPS = {5: 32, 10: 32, 11: 60, 12: 60}


@pytest.mark.parametrize("event", ["epoch", "checkpoint_saved"])
def test_threads_of_the_first_evaluation_are_no_growth(event: str):
    accounting.nothing_grows(run_with(STARTED_BY_EVALUATION, 15.5, 30.5, 45.5, event=event))
    with pytest.raises(CheckFailed, match="10 more threads after 20 more steps"):
        accounting.nothing_grows(run_with(STARTED_BY_EACH_EPOCH, 15.5, 30.5, 45.5, event=event))


@pytest.mark.parametrize("epoch_ends", [(), (45.5,), (11.5,)], ids=["none", "last", "one-look"])
def test_one_epoch_is_compared_within_itself(epoch_ends: tuple[float, ...]):
    with pytest.raises(CheckFailed, match="more threads"):
        accounting.nothing_grows(run_with(STARTED_BY_STEPS, *epoch_ends))


def test_too_few_looks_are_no_answer():
    assert not list(growth.growths(run_with({5: 32, 10: 33}, 7.5)))
    assert not list(growth.growths(run_with({5: 32})))
