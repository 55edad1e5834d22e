"""Completion: a run ends as it was asked to, and what it reports adds up.

`finished` is held against what was asked for, the steps against `finished`: a trainer that ends
quietly, with exit 0, after an error is told apart from one that miscounts.
"""

from __future__ import annotations

from collections import Counter

from suite.harness.checks.assertions import (
    asked,
    asked_steps,
    check,
    equal,
    last_attempt,
    only,
    require,
    some,
)
from suite.harness.core.history import Event, Run


@check
def finishes_requested_steps(run: Run) -> None:
    """Every driver exits with 0 after `finished` with the step count that was asked for."""
    for task in run.drivers:
        attempt = last_attempt(run, task)
        exited = only(f"end of {task}", run.of("exited", task, attempt))
        equal(f"exit code of {task}", exited["code"], 0)
        finished = only(f"`finished` of {task}", run.of("finished", task, attempt))
        wanted = asked_steps(run)
        found = finished["global_step"]
        exact = run.trainer.synchronous or run.trainer.aggregates
        enough = found == wanted if exact else found >= wanted
        require(enough, f"{task} finished at global step {found}, {wanted} were asked for")


@check
def steps_accounted(run: Run) -> None:
    """Each driver reports every step up to `finished` exactly once, and each epoch its steps."""
    for task in run.drivers:
        steps = some(f"step of {task}", run.of("step", task))
        finished = only(f"`finished` of {task}", run.of("finished", task))
        equal(f"steps of {task}", [e["step"] for e in steps], list(range(1, len(steps) + 1)))
        equal(f"steps that {task} counted", finished["steps"], len(steps))
        if run.trainer.synchronous:
            first = steps[0]["global_step"]
            numbers = [e["global_step"] for e in steps]
            equal(f"global steps of {task}", numbers, list(range(first, first + len(steps))))
            equal(f"last global step of {task}", numbers[-1], finished["global_step"])


@check
def epochs_accounted(run: Run) -> None:
    """Each driver reports each epoch once, in order, with the steps that lie in it."""
    for task in run.drivers:
        epochs = some(f"epoch of {task}", run.of("epoch", task))
        equal(f"epochs of {task}", [e["epoch"] for e in epochs], list(range(1, len(epochs) + 1)))
        steps = Counter(_epoch_of(e, epochs) for e in run.of("step", task))
        for epoch in epochs:
            what = f"steps of {task} in epoch {epoch['epoch']}"
            equal(what, steps[epoch["epoch"]], epoch["steps"])


@check
def examples_accounted(run: Run) -> None:
    """Each worker processes, in every step, a batch for each of its replicas."""
    batch = asked(run, "batch-size") * run.devices
    for event in some("step", run.of("step")):
        equal(f"examples of {event.task} in step {event['global_step']}", event["examples"], batch)


def _epoch_of(step: Event, epochs: list[Event]) -> int:
    """The epoch that is the next to end after the step; 0 for a step behind the last one."""
    return next((e["epoch"] for e in epochs if step.time_s <= e.time_s), 0)
