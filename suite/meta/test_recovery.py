"""Tests of metrics of lost tasks, on hand-written histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite.harness.core.history import Event, Run
from suite.harness.metrics import recovery
from suite.meta.fakes import WORKERS

TASKS = ("worker/0", "worker/1", "worker/2")


def lived(*events: Event) -> Run:
    return Run(WORKERS, TASKS, TASKS, "ring", "none", events)


def ended(task: str, time_s: float, by_harness: bool) -> Event:
    return Event("exited", time_s, task, 0, {"ended_by_harness": by_harness})


def epoch(loss: float) -> Event:
    return Event("epoch", 1.0, "worker/0", 0, {"metrics": {"loss": loss}})


LOSS = lived(
    Event("fault_started", 10.0, "worker/1", 0, {"fault": "sigkill"}),
    ended("worker/1", 10.1, True),
    ended("worker/0", 10.5, False),
    ended("worker/2", 50.0, True),
    Event("spawned", 51.0, "worker/0", 1),
    Event("spawned", 52.0, "worker/1", 1),
    Event("step", 53.0, "worker/0", 1),
    Event("step", 53.5, "worker/1", 1),
    Event("step", 54.0, "worker/0", 1),
)


def test_only_a_worker_that_exited_itself_has_detected():
    assert dict(recovery.detection_s(LOSS)) == {"worker/0": 0.5}
    assert recovery.hung(LOSS) == ["worker/2"]


def test_detection_is_the_reported_error_however_late_the_exit():
    reported = Event("peer_lost", 10.2, "worker/0", 0, {"error": "UnavailableError"})
    too_late = Event("peer_lost", 20.0, "worker/2", 0, {"error": "UnavailableError"})
    run = lived(reported, too_late, *LOSS.events)
    assert dict(recovery.detection_s(run)) == {"worker/0": pytest.approx(0.2)}
    assert recovery.hung(run) == ["worker/2"]  # the harness had to end it


def test_training_is_back_when_all_have_made_a_step():
    assert recovery.resumed_s(LOSS) == 1.5


def test_what_an_interruption_costs_is_the_difference_of_losses():
    assert recovery.cost_in_loss(lived(epoch(2.5)), lived(epoch(2.0))) == 0.5


def saved(name: str, time_s: float, seconds: float | None) -> Event:
    return Event(name, time_s, "worker/0", 0, {"seconds": seconds})


def test_saving_is_a_median_and_restoring_the_longest():
    events = [saved("checkpoint_saved", i, s) for i, s in enumerate((0.1, 0.9, None, 0.2))]
    events += [saved("restored", 5.0, 9.0), *LOSS.events]
    events += [saved("restored", 52.5, s) for s in (0.3, 0.4, None)]
    assert recovery.saved_s(lived(*events)) == 0.2
    assert recovery.restored_s(lived(*events)) == 0.4


def test_events_without_seconds_are_not_measured():
    run = lived(saved("checkpoint_saved", 1.0, None), *LOSS.events)
    assert recovery.saved_s(run) is None
    assert recovery.restored_s(run) is None


def test_without_a_fault_there_is_nothing_to_measure():
    with pytest.raises(ValueError, match="this run has no fault"):
        recovery.hung(lived())


def step(task: str, time_s: float, global_step: int, attempt: int = 0) -> Event:
    return Event("step", time_s, task, attempt, {"global_step": global_step, "examples": 32})


def test_steps_lost_are_those_reported_after_the_restored_one():
    events = [
        step("worker/0", 9.0, 21),
        Event("fault_started", 10.0, "worker/1", 0, {"fault": "disk-full"}),
        step("worker/0", 11.0, 25),  # a full disk has no effect before the next save
        Event("spawned", 51.0, "worker/0", 1),
        Event("restored", 52.0, "worker/0", 1, {"global_step": 20}),
        step("worker/0", 53.0, 40, attempt=1),
    ]
    run = lived(*events)
    assert (recovery.steps_reported(run), recovery.steps_lost(run)) == (25, 5)


def test_a_synchronous_step_has_the_examples_of_all_workers():
    events = [step(task, 1.0, 1) for task in TASKS]
    assert recovery.examples_of_a_step(lived(*events)) == 96
    alone = replace(lived(*events), trainer=replace(WORKERS, synchronous=False))
    assert recovery.examples_of_a_step(alone) == 32


@pytest.mark.parametrize(("target", "seconds"), [("ps/0", 43.0), ("evaluator/0", None)])
def test_recovery_is_a_step_of_all_dependents_of_the_target(target: str, seconds: float | None):
    events = [
        Event("fault_started", 10.0, target, 0, {"fault": "sigkill"}),
        Event("spawned", 51.0, target, 1),
        step("worker/0", 53.0, 40),
        step("worker/1", 54.0, 41),
    ]
    assert recovery.recovered_s(lived(*events)) == seconds
