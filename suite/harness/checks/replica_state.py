"""Check layers that train differently on several replicas: batch normalization and dropout.

An event of weights has the file of the layers' statistics, with the value of each local replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from suite.harness.checks import equivalence, numpy_model
from suite.harness.checks.assertions import (
    check,
    equal,
    flag_value,
    only,
    require,
    some,
    weights,
)
from suite.harness.checks.numpy_model import Array
from suite.harness.core.history import Event, Run

# A mean over replicas in float32, and a sum over the test set.
ROUNDING = 1e-5
# How far apart statistics may be after some steps of training. Rounding may choose a ReLU on one
# side only: one seed had 2.8e-3, and one of 3,261 others was beyond 1e-3. The statistics of one
# replica are 1.5e-2 from the mean of two.
TRAINED = 5e-3
# The batches of two replicas are of other images.
DIFFERENT = 1e-3


@check
def normalizes_own_batches(run: Run, reference: Run) -> None:
    """Require the training of `reference`, which normalizes the batch of each replica by itself.

    The mean of the replicas' moving statistics must be that of `reference`, too.
    """
    equivalence.equals_large_batch(run, reference)
    what, whose = "the mean of the replicas' statistics", "those of one process"
    _near(what, _mean(run), whose, _mean(reference), TRAINED)
    apart = max(float(np.ptp(array, axis=0).max()) for array in _of_replicas(run))
    require(
        apart > DIFFERENT,
        f"statistics of the replicas are {apart:.1e} apart, so they do not come from own batches",
    )


@check
def normalizes_the_whole_batch(run: Run, reference: Run) -> None:
    """Require the training of one process with the whole batch, also of the statistics."""
    equivalence.equals_large_batch(run, reference)
    wanted, whose = _mean(reference), "those of one process"
    for number, of_replica in enumerate(zip(*_of_replicas(run), strict=True)):
        _near(f"statistics of replica {number}", of_replica, whose, wanted, TRAINED)


@check
def evaluates_with_moving_statistics(run: Run) -> None:
    """Require a loss that is possible if each example is evaluated with moving statistics.

    They may be those of any replica: a replica uses its own. Training must have changed them.
    """
    for task in run.drivers:
        begin = some(f"initial weights of {task}", weights(run, "initial", task))[0]
        pairs = zip(_statistics(begin), _statistics(_final(run, task)), strict=True)
        require(
            not all(np.array_equal(before, after) for before, after in pairs),
            f"the moving statistics of {task} are those before training",
        )
    found = some("evaluation", run.of("evaluated"))[-1]["metrics"]["loss"]
    final = numpy_model.weights_in(_final(run, run.drivers[0])["npz"])
    images, labels = numpy_model.examples(flag_value(run, "data"), "test")
    losses = []  # of each example, with the statistics of each replica
    for of_replica in zip(*_of_replicas(run), strict=True):
        outputs = numpy_model.logits(numpy_model.without_normalization(final, of_replica), images)
        losses.append(numpy_model.losses(outputs, labels))
    low, high = (float(each(losses, axis=0).mean()) for each in (np.min, np.max))
    require(
        low * (1 - ROUNDING) <= found <= high * (1 + ROUNDING),
        f"loss of {len(labels)} test examples: {found:.6g}. With the moving statistics of the "
        f"replicas it is from {low:.6g} to {high:.6g}",
    )


@check
def restores_mean_statistics(run: Run, then: Run) -> None:
    """Require that each replica of the second run begins with the mean of the first run's."""
    wanted = _mean(run)
    for task in then.workers:
        first = some(f"initial weights of {task}", weights(then, "initial", task))[0]
        for number, found in enumerate(zip(*_statistics(first), strict=True)):
            what = f"restored statistics of {task}'s replica {number}"
            _near(what, found, "the mean of the first run", wanted)


@check
def exports_mean_statistics(run: Run) -> None:
    """Require that the exported model has the mean of the replicas' moving statistics."""
    wanted = _mean(run)
    for event in some("export", run.of("exported")):
        found = _statistics(event)
        _near(f"exported statistics of {event.task}", found, "the mean of the replicas", wanted)


@check
def draws_masks(run: Run) -> None:
    """Require that each replica drops some units at the end of each epoch, and then others."""
    for task, masks in _masks(run).items():
        require(len(masks) > 1, f"{task} has the dropout masks of {len(masks)} epoch, not of more")
        for number, of_replica in enumerate(zip(*masks, strict=True)):
            what = f"{task}'s replica {number}"
            for mask in of_replica:
                equal(f"values in a dropout mask of {what}", sorted(set(mask.tolist())), [0.0, 2.0])
            for before, after in pairwise(of_replica):
                same = np.array_equal(before, after)
                require(not same, f"{what} has the same dropout mask after two epochs")


@check
def draws_own_masks(run: Run) -> None:
    """Require that no two replicas have the same dropout mask at the end of an epoch."""
    by_task = _masks(run)
    equal("epochs' ends", len({len(masks) for masks in by_task.values()}), 1)
    for epoch, of_tasks in enumerate(zip(*by_task.values(), strict=True), 1):
        masks = [mask.tobytes() for of_task in of_tasks for mask in of_task]
        same = len(masks) - len(set(masks))
        require(
            not same,
            f"{same} of {len(masks)} replicas have the dropout mask of another one "
            f"at the end of epoch {epoch}",
        )


def _masks(run: Run) -> dict[str, list[Array]]:
    """Return the masks [replicas, units] at each epoch's end, by task."""
    return {
        task: [
            only("mask", _statistics(event))
            for event in some(f"epoch's weights of {task}", weights(run, "epoch", task))
        ]
        for task in run.workers
    }


def _final(run: Run, task: str) -> Event:
    """Return the weights at the end, or at that of the last epoch if the run was ended then."""
    reports = [*weights(run, "epoch", task), *weights(run, "final", task)]
    return some(f"weights of {task} at the end", reports)[-1]


def _statistics(event: Event) -> list[Array]:
    """Return the event's moving statistics or masks, arrays [local replicas, ...] of weights."""
    require(event.get("statistics"), f"{event.task} has reported no statistics")
    return numpy_model.weights_in(event["statistics"])


def _of_replicas(run: Run) -> list[Array]:
    """Return arrays [replicas of all workers, ...] of the moving statistics at the end."""
    of_tasks = [_statistics(_final(run, task)) for task in run.drivers]
    return [np.concatenate(arrays) for arrays in zip(*of_tasks, strict=True)]


def _mean(run: Run) -> list[Array]:
    return [array.mean(axis=0) for array in _of_replicas(run)]


def _near(
    what: str,
    found: Sequence[Array],
    whose: str,
    wanted: Sequence[Array],
    limit: float = ROUNDING,
) -> None:
    equal(f"shapes of {what}", [x.shape for x in found], [x.shape for x in wanted])
    for i, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        apart = float(np.abs(ours - theirs).max())
        require(
            apart <= limit,
            f"{what}, array {i}, differ by up to {apart:.2g} from {whose}; "
            f"rounding explains up to {limit:g}",
        )
