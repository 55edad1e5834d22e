"""Check a Supervisor, TensorFlow 1's parameter servers: global step, waits and saves."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suite.harness.checks import equivalence, numpy_model
from suite.harness.checks.accounting import last_step
from suite.harness.checks.assertions import (
    check,
    equal,
    flag_value,
    last_attempt,
    only,
    requested_steps,
    require,
    some,
    weights,
)
from suite.harness.checks.checkpoints import chief
from suite.harness.checks.parameter_servers import GOING_ON, steps_without
from suite.harness.core.history import Run
from suite.harness.core.paths import remains

ADAGRAD_START = 0.1  # the accumulator's default in tf.compat.v1.train.AdagradOptimizer
# How far apart the weights may be, as a share of the distance moved. Which of its four gradients
# the first step takes is not visible; a wrong choice makes 1e-2 of it after 200 steps.
APART = 5e-2


@check
def global_step_counts_all(run: Run) -> None:
    """Require that the shared global step equals the number of all workers' steps."""
    steps = some("step", run.of("step"))
    counted = max(e["global_step"] for name in ("step", "finished") for e in run.of(name))
    # A worker reads the counter while others add to it, and may read it before its own addition.
    slack = len(run.workers)
    require(
        abs(counted - len(steps)) <= slack,
        f"the global step came to {counted}, all workers together made {len(steps)} steps",
    )
    for task in () if run.trainer.of_user else run.workers:
        for number, e in enumerate(run.of("step", task), 1):
            step = e["global_step"]
            require(step >= number, f"step {number} of {task} read the global step {step}")


@check
def aggregates_accounted(run: Run) -> None:
    """Require gradients for all global steps, and none beyond the number that tokens allow.

    No document promises how many each worker makes. A step aggregates one gradient of each worker
    here, and gives each worker a token for one more. As many tokens exist before the first step,
    and some of those gradients arrive too late for it and are dropped.
    """
    workers = len(run.workers)
    made = {task: len(run.of("step", task)) for task in run.workers}
    ends = [some(f"`finished` of {task}", run.of("finished", task))[-1] for task in run.workers]
    counted = max(e["global_step"] for e in ends)
    fewest, most = workers * counted, workers * (counted + 1)
    total = sum(made.values())
    require(
        fewest <= total <= most and total,
        f"the workers made {total} steps ({made}); {counted} global steps of {workers} gradients "
        f"take {fewest} to {most}",
    )


@check
def aggregates_equal_large_batch(run: Run) -> None:
    """Require the weights of one process that applies the mean gradient of each step's batches.

    NumPy computes it from the initial weights and the audited batches, with Adagrad as in
    tf.compat.v1.train.AdagradOptimizer.
    """
    task, needed = run.drivers[0], len(run.workers)
    (start, _), (end, steps) = (_weights(run, task, when) for when in ("initial", "final"))
    batches = _aggregated(run, needed)
    images, labels = numpy_model.examples(flag_value(run, "data"), "train")
    rate = flag_value(run, "learning-rate")
    arrays = [array.astype(np.float64) for array in start]
    squares = [np.full_like(array, ADAGRAD_START) for array in arrays]
    for step in range(steps):
        equal(f"gradients for step {step}", len(batches.get(step, ())), needed)
        found = [numpy_model.gradients(arrays, images[ids], labels[ids]) for ids in batches[step]]
        for i, parts in enumerate(zip(*found, strict=True)):
            mean = np.mean(parts, axis=0)
            squares[i] += mean**2
            arrays[i] -= rate * mean / np.sqrt(squares[i])
    for i, (after, wanted, before) in enumerate(zip(end, arrays, start, strict=True)):
        what = f"weights {i} of shape {after.shape} after {steps} steps"
        whose = f"one process with the mean of {needed} gradients"
        equivalence.weights_near(what, after, whose, wanted, before, APART)


@check
def stops_at_the_limit(run: Run) -> None:
    """Require that each driver reaches the step limit, and makes no step after seeing it.

    At the limit, each worker but one may have a step under way.
    """
    limit = requested_steps(run)
    most = math.inf if run.trainer.of_user else limit + len(run.drivers) - 1
    for task in run.drivers:
        steps = [e["global_step"] for e in run.of("step", task)]
        beyond = [step for step in steps[:-1] if step >= limit]
        require(not beyond, f"{task} went on after it had seen step {beyond[:1]} of {limit}")
        end = last_step(run, task)
        require(limit <= end <= most, f"{task} stopped at global step {end} of {limit}")


@check
def returning_chief_keeps_the_model(run: Run) -> None:
    """Require that a chief that returns to an initialized model restores no checkpoint.

    Source: "Use for multiple replicas" in the docstring of tf.compat.v1.train.Supervisor.
    """
    leader = chief(run)
    attempt = last_attempt(run, leader)
    some(f"step of {leader} after it came back", run.of("step", leader, attempt))
    steps = [event["global_step"] for event in run.of("restored", leader, attempt)]
    require(not steps, f"{leader} came back to an initialized model and restored step {steps}")


@check
def workers_wait_for_chief(run: Run) -> None:
    """Require that no worker makes a step before the late chief is up and able to initialize.

    Only the servers know when the chief has initialized: its own report may come after others'
    steps.
    """
    leader = chief(run)
    up = only(f"start of {leader}", run.of("started", leader))
    others = [e for e in run.of("started") if e.task in run.workers and run.surely_before(e, up)]
    some(f"worker that was up before {leader}", others)
    steps = [e for e in run.of("step") if e.task != leader]
    first = min(some(f"step of others than {leader}", steps), key=lambda e: e.time_s)
    require(
        not run.surely_before(first, up),
        f"{first.task} made a step {up.time_s - first.time_s:.3f} s before {leader} was up",
    )


@check
def supervisor_saves(run: Run) -> None:
    """Require that only the chief saves while it trains, at increasing global steps.

    The last checkpoint must exist.
    """
    saved = some("checkpoint", run.of("checkpoint_saved"))
    equal("tasks that save", sorted({e.task for e in saved}), [chief(run)])
    steps = [e["global_step"] for e in saved]
    require(steps == sorted(steps), f"global steps of the checkpoints: {steps}")
    require(steps[-1] > steps[0], f"no checkpoint is further on than the first: {steps}")
    require(remains(saved[-1]["path"]), f"the last checkpoint is gone: {saved[-1]['path']}")


@check
def supervisor_writes_summaries(run: Run) -> None:
    """Require that only the chief writes summaries of its training."""
    summaries = some("summary", run.of("summary"))
    equal("tasks that write summaries", sorted({e.task for e in summaries}), [chief(run)])
    require(remains(summaries[-1]["path"]), f"there is no {summaries[-1]['path']}")


@check
def peers_block_without_worker(run: Run) -> None:
    """Require that peers block while a worker's gradients are missing, and continue afterwards."""
    for made, message in steps_without(run):
        require(made < GOING_ON, message)
    back = run.of("spawned", attempt=1)[0]
    for task in run.workers:
        after = [e for e in run.of("step", task) if e.time_s > back.time_s]
        some(f"step of {task} after {back.task} came back", after)


def _aggregated(run: Run, needed: int) -> dict[int, list[list[int]]]:
    """Return step -> the batches whose gradients it aggregates: the first that are `needed`.

    A worker's gradient is for the step in the token that it got for the gradient before; its first
    is for the step at which it began. Others are too late, and dropped.
    """
    found: dict[int, list[tuple[float, list[int]]]] = {}
    for task in run.workers:
        steps = [e["global_step"] for e in some(f"step of {task}", run.of("step", task))]
        inputs = run.of("input", task)
        for step, event in zip([steps[0], *steps], inputs, strict=False):
            found.setdefault(step, []).append((event.time_s, event["ids"]))
    return {step: [ids for _, ids in sorted(pairs)[:needed]] for step, pairs in found.items()}


def _weights(run: Run, task: str, when: str) -> tuple[list[npt.NDArray[np.floating]], int]:
    """Return the last weights of one kind, and their global step."""
    event = some(f"{when} weights of {task}", weights(run, when, task))[-1]
    return numpy_model.weights_in(event["npz"]), event["global_step"]
