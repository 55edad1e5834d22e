"""Compute times to detect and to recover from a fault. Pure functions without a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from suite.harness.core.history import Event, Run


def fault_of(run: Run) -> Event:
    """Return the first fault. Raise ValueError for a run without one."""
    faults = run.of("fault_started")
    if not faults:
        raise ValueError("this run has no fault")
    return faults[0]


def detection_s(run: Run) -> Iterator[tuple[str, float]]:
    """Yield each peer that exited by itself, and its seconds from the fault to its error.

    Use its exit if it reported no error.
    """
    fault = fault_of(run)
    for task in run.drivers:
        ends = [e for e in run.of("exited", task) if e.time_s > fault.time_s]
        failed = run.failure_of(task, fault.time_s)
        if task != fault.task and ends and failed and not ends[0]["ended_by_harness"]:
            yield task, failed.time_s - fault.time_s


def left_s(run: Run) -> float:
    """Return the seconds from the preemption notice until all tasks had exited."""
    ends = [e.time_s for e in run.of("exited", attempt=0)]
    return max(ends) - fault_of(run).time_s


def hung(run: Run) -> list[str]:
    """Return the peers that the harness had to end."""
    fault = fault_of(run)
    detected = dict(detection_s(run))
    ended = {e.task for e in run.of("exited") if e.time_s > fault.time_s}
    return [t for t in run.drivers if t != fault.task and t in ended and t not in detected]


def resumed_s(run: Run) -> float:
    """Return the seconds from the last restart of a task until all have made their first step."""
    back = [e for e in run.of("spawned") if e.attempt]
    steps = [e for e in run.of("step") if e.attempt and e.time_s > back[-1].time_s]
    first = {e.task: e.time_s for e in reversed(steps)}
    return max(first.values()) - back[-1].time_s


def recovered_s(run: Run) -> float | None:
    """Return the seconds from the fault to the first step after the lost task is back.

    It is a step of that task, or of any driver if the task makes no steps. Return None without one.
    """
    fault = fault_of(run)
    back = [e for e in run.of("spawned", fault.task) if e.time_s > fault.time_s]
    back = back or run.of("fault_ended", fault.task)
    if not back or fault.task.startswith("evaluator/"):
        return None
    # A parameter server makes no steps; after its return the drivers do.
    trains = fault.task in (*run.workers, *run.drivers)
    reporters = [fault.task] if trains else run.drivers
    times_s = [e.time_s for task in reporters for e in run.steps_of(task, back[-1].time_s)]
    return min(times_s) - fault.time_s if times_s else None


def steps_reported(run: Run) -> int:
    """Return the last global step that any task had reported before a task was restarted.

    It is not before the fault: tasks detect a full disk only at the next save.
    """
    since_s = fault_of(run).time_s
    until_s = min((e.time_s for e in run.of("spawned") if e.time_s > since_s), default=since_s)
    return max((e["global_step"] for e in run.of("step") if e.time_s <= until_s), default=0)


def steps_lost(run: Run) -> int:
    """Return the number of reported global steps after the restored one, which are repeated."""
    since_s = fault_of(run).time_s
    restored = [e["global_step"] for e in run.of("restored") if e.time_s > since_s]
    return steps_reported(run) - (restored[0] if restored else 0)


def saved_s(run: Run) -> float | None:
    """Return the median seconds of a save over all tasks that report it; None without a report."""
    saves_s = _seconds(run.of("checkpoint_saved"))
    return median(saves_s) if saves_s else None


def restored_s(run: Run) -> float | None:
    """Return the seconds of the longest restore after the fault; None without a report."""
    since_s = fault_of(run).time_s
    return max(_seconds(e for e in run.of("restored") if e.time_s > since_s), default=None)


def _seconds(events: Iterable[Event]) -> list[float]:
    return [e["seconds"] for e in events if e.get("seconds") is not None]


def examples_of_a_step(run: Run) -> int | None:
    """Return the examples of a global step: of all workers if they are synchronous, else of one.

    None: an observer cannot see them.
    """
    last = {e.task: e["examples"] for e in run.of("step")}
    if None in last.values():
        return None
    return sum(last.values()) if run.trainer.synchronous else max(last.values(), default=0)


def cost_in_loss(run: Run, reference: Run) -> float:
    """Return the last training loss of the run minus that of the reference.

    This is the cost of an interruption.
    """
    last = [r.of("epoch", r.drivers[0])[-1]["metrics"]["loss"] for r in (run, reference)]
    return last[0] - last[1]
