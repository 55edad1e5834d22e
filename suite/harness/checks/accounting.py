"""Check completion: a run ends as requested, and its reported numbers add up.

The step count of `finished` must match the request, and the reported steps must match `finished`.
This separates a trainer that exits with 0 after an error from one that miscounts.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate

from suite.harness.checks import equivalence
from suite.harness.checks.assertions import (
    check,
    close,
    equal,
    flag_value,
    last_attempt,
    only,
    requested_steps,
    require,
    some,
)
from suite.harness.core.history import Event, Run
from suite.harness.metrics import step_counts
from suite.harness.metrics.growth import growths

# Means in float32, of as many steps as an epoch has, summed in another order.
SUMMED = 1e-5


@check
def every_task_exits_with_success(run: Run) -> None:
    """Require that every driver ends by itself with exit code 0."""
    for task in some("driver", run.drivers):
        exited = some(f"end of {task}", run.of("exited", task))[-1]
        equal(f"exit code of {task}", exited["code"], 0)
        require(not exited["ended_by_harness"], f"{task} did not end by itself")


@check
def no_process_left_running(run: Run) -> None:
    """Require that the processes that a task starts end with it, or soon after it."""
    for task in some("driver", run.drivers):
        some(f"end of {task}", run.of("exited", task))
        left = [c for e in run.of("left_running", task) for c in e["commands"]]
        require(not left, f"{task} has ended, and processes that it started run on: {left}")


@check
def finishes_requested_steps(run: Run) -> None:
    """Require that every driver exits with 0 after `finished` with the requested step count."""
    for task in run.drivers:
        attempt = last_attempt(run, task)
        exited = only(f"end of {task}", run.of("exited", task, attempt))
        equal(f"exit code of {task}", exited["code"], 0)
        wanted, found = requested_steps(run), last_step(run, task)
        exact = run.trainer.synchronous or run.trainer.aggregates
        enough = found == wanted if exact else found >= wanted
        require(enough, f"{task} finished at global step {found}, {wanted} were asked for")


def last_step(run: Run, task: str) -> int:
    """Return the global step at which a driver finished.

    A user's program of asynchronous workers may read it before its own step is counted, so a worker
    need not see the last step, which another has made: it is the highest that any has seen.
    """
    drivers = run.drivers if run.trainer.observed and not run.trainer.synchronous else (task,)
    ends = [
        only(f"`finished` of {one}", run.of("finished", one, last_attempt(run, one)))["global_step"]
        for one in drivers
    ]
    return max(ends)


@check
def steps_accounted(run: Run) -> None:
    """Require that each driver reports every step up to `finished` exactly once."""
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
    """Require that each driver reports each epoch once, in order, with the number of its steps.

    A program of a user may train several times. Each time, its epochs start over.
    """
    for task in run.drivers:
        epochs = some(f"epoch of {task}", run.of("epoch", task))
        numbers = [e["epoch"] for e in epochs]
        wanted: list[int] = []
        for number in numbers:
            starts_over = not wanted or (run.trainer.of_user and number == 1)
            wanted.append(1 if starts_over else wanted[-1] + 1)
        equal(f"epochs of {task}", numbers, wanted)
        steps = Counter(_epoch_of(e, epochs) for e in run.of("step", task))
        for number, epoch in enumerate(epochs):
            what = f"steps of {task} in epoch {epoch['epoch']}"
            equal(what, steps[number], epoch["steps"])


@check
def epoch_loss_is_that_of_its_steps(run: Run) -> None:
    """Require that the loss of an epoch is the mean of the losses of its steps, over all workers.

    Steps of asynchronous workers end in an epoch that is not known, so their mean is over the run.
    """
    losses = equivalence.loss_by_step(run)
    for task in run.drivers:
        epochs = some(f"epoch of {task}", run.of("epoch", task))
        lasts = list(accumulate(e["steps"] for e in epochs))
        groups = [(0, lasts[-1], epochs)]
        if run.trainer.synchronous:
            groups = [(last - e["steps"], last, [e]) for last, e in zip(lasts, epochs, strict=True)]
        for first, last, own in groups:
            sums = [losses[step] for step in range(first + 1, last + 1) if step in losses]
            examples = sum(count for _, count in sums)
            mean = sum(loss * count for loss, count in sums) / examples if examples else math.nan
            steps = sum(e["steps"] for e in own)
            found = sum(e["metrics"]["loss"] * e["steps"] for e in own) / steps
            what = f"loss of {task} in steps {first + 1} to {last}, against the mean of the steps'"
            close(what, found, mean, SUMMED)


@check
def examples_accounted(run: Run) -> None:
    """Require that each worker processes a batch for each of its replicas in every step."""
    batch = flag_value(run, "batch-size") * run.devices
    for event in some("step", run.of("step")):
        equal(f"examples of {event.task} in step {event['global_step']}", event["examples"], batch)


def _epoch_of(step: Event, epochs: list[Event]) -> int:
    """Return the index of the first epoch that ends after the step; -1 after the last epoch."""
    return next((n for n, e in enumerate(epochs) if step.time_s <= e.time_s), -1)


@check
def nothing_grows(run: Run) -> None:
    """Require that no driver's heap, threads and open files grow while it trains."""
    for growth in some("look at the resources of a driver", growths(run)):
        require(
            growth.amount <= growth.allowed,
            f"{growth.task} has {growth.amount:.0f} more {growth.limit.what} after "
            f"{growth.steps:.0f} more steps; up to {growth.allowed:.0f} are allowed",
        )


@check
def is_seldom_retraced(run: Run) -> None:
    """Require that the function that trains is traced at most once for every two of its steps.

    Each trace takes as long as many steps and stays in memory. It is repeated for each new Python
    value of an argument, and for each new shape (https://www.tensorflow.org/guide/function).
    """
    some("trace of the function that trains", run.of("traced"))
    for driver, traces in step_counts.retraced(run).items():
        steps = len(run.of("step", driver))
        require(
            2 * len(traces) <= max(steps, 2),
            f"{driver} traced its step {len(traces)} times again in {steps} steps",
        )
