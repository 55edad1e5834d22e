"""Check equality: N replicas with batch b make the steps of one process with batch N*b."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from suite.harness.checks import numpy_model
from suite.harness.checks.assertions import (
    check,
    close,
    equal,
    flag_value,
    require,
    same,
    some,
    weights,
)
from suite.harness.core.errors import NotExamined
from suite.harness.core.history import Run

# Both sides compute the same numbers in float32, but add them in another order: within a batch, and
# then over workers. Keras' own correctness tests allow 4e-5, absolute plus relative, between
# distributed and non-distributed training.
ROUNDING = 4e-5
# Training must move each array far enough that a wrong gradient shows. The smallest move of any
# seed, in the few steps after a restored checkpoint, was 7.7e-4.
MOVED = 10 * ROUNDING


@dataclass(frozen=True)
class Tolerance:
    """Limits of rounding: on a step's loss, and on weights as a share of their distance moved."""

    loss: float
    first_epoch: float
    later: float
    later_loss: float
    biases: bool = True  # whether arrays of one axis have these limits, or none

    def weights_after(self, epoch: int) -> float:
        """Return the limit for the weights after that epoch, counted from 1."""
        return self.first_epoch if epoch == 1 else self.later


# How far apart the weights may be after an epoch, as a share of the distance that training has
# moved them (both as L2 norms of an array). Rounding alone makes 1e-6 of it. But a ReLU with an
# input of almost 0, or one of two pixels that are almost equal to max pooling, may be chosen on one
# side only. One seed in nine meets this within 10 steps: the weights are then up to 4e-3 apart, and
# diverge from there. Of 914 seeds of TensorFlow's CNN for custom loops, XLA's steps against plain
# ones, one was 2.3e-2 apart after 5 steps and all others 3.4e-3 at most; after 10 steps 2.3e-2.
# Halves of the batch against whole ones: 2.1e-3 and 9.8e-3. One seed drawn by a whole run was
# 3.8e-2 apart after 10. Float64 agrees with neither. A worker's share that is lost or counted twice
# makes a quarter or more, already in the first epoch.
#
# Where layers compute in bfloat16, of 8 bits, each replica rounds its part of a gradient to
# bfloat16. Of 197 seeds of TensorFlow's CNN for fit, halves of the batch against whole ones, the
# losses of ten steps were at most 3e-4 apart, and the kernels 2.3e-2 of their distance. The
# gradient of a convolution's bias is a sum of thousands of such numbers, which cancel each other:
# the bias was up to half of its distance apart, and for 8 seeds more than 0.3, which is more than
# some lost shares make. These show in the kernels, and with float32 in the biases too.
TOLERANCES = {
    "float32": Tolerance(ROUNDING, 5e-2, 0.1, ROUNDING),
    "mixed_bfloat16": Tolerance(1e-3, 5e-2, 0.1, 1e-3, biases=False),
}
# Batch normalization passes on to all examples what a ReLU chose for one. One seed drawn by a whole
# run had equal losses in four steps, 1e-7 between them in the fifth, and 7.3e-5 in the sixth. Where
# replicas normalize their own batches, one had 6.6e-6 in the third step and 4.8e-5 in the fifth.
# Of 3,261 others six had more than 4e-5 after the third, 3.1e-4 at most. All strategies agreed.
# Statistics of other batches show in the first step.
NORMALIZED_MODELS = ("normalized-cnn", "synchronized-cnn")
# Adam divides a gradient by its own size, and so makes whole steps of differences in gradients of
# almost 0. Of 1,120 seeds of TensorFlow's CNN for custom loops, halves of the batch against whole
# ones, the losses were at most 1.2e-5 apart in the first three steps, 2.3e-5 in the fifth, and
# 3.4e-4 in later ones. One seed drawn by a whole run had 4.4e-5 in the fifth. With momentum, none
# of 416 seeds was beyond 6.5e-6.
ADAM = "adam"
# Of both: limits where the model or the optimizer makes more of rounding than others do.
AMPLIFIED = replace(TOLERANCES["float32"], later_loss=1e-3)


def tolerance_of(run: Run) -> Tolerance:
    """Return the limits for the model and the precision of a run."""
    if run.flags.get("model") in NORMALIZED_MODELS or run.flags.get("optimizer") == ADAM:
        return AMPLIFIED
    return TOLERANCES[run.flags.get("precision") or "float32"]


# Limit for the loss (relative) and the accuracy of an epoch, where weights may differ by more than
# rounding. An accuracy that includes the epoch before is five times as far away.
LATER_METRICS = 2e-2
ADAM_EPSILON = 1e-7
# How far apart the weights may be after a step of Adam, as a share of the distance it moved them.
ADAM_APART = 5e-3
# Rounding decides whether a ReLU unit is active for an example at its edge. One such unit makes its
# own weights differ by up to 0.015, and those of the layer before by 0.002.
UNITS_AT_THE_EDGE = 2


@check
def equals_large_batch(run: Run, reference: Run) -> None:
    """Require the same loss in every step and the same weights after every epoch as `reference`.

    `reference` is one process with the batch of all replicas, from the same weights.
    """
    tolerance = tolerance_of(run)
    if any(e["loss"] is None for e in run.of("step")):  # an observer sees no loss
        equal("global steps", _steps(run), _steps(reference))
    else:
        _losses_equal(run, reference, tolerance)
    # Epochs of a loop are not visible.
    seen = weights(run, "epoch", run.workers[0]) or not run.trainer.of_user
    end = "epoch" if seen else "final"
    (*_, start), ours = (_arrays(run, when) for when in ("initial", end))
    (*_, start_single), theirs = (_arrays(reference, when) for when in ("initial", end))
    for i, before in enumerate(start):
        require(np.array_equal(before, start_single[i]), f"initial weights {i} differ")
    for i, (before, after) in enumerate(zip(start, ours[-1], strict=True)):
        moved = float(np.max(np.abs(after - before)))
        if moved <= MOVED and run.trainer.of_user:
            raise NotExamined(f"its weights {i} have moved by {moved:.1e} only")
        require(
            moved > MOVED,
            f"final weights {i} of shape {after.shape} have moved by {moved:.1e} only, "
            f"less than {MOVED:g}",
        )
    equal("epochs' ends", len(ours), len(theirs))
    for epoch, (found, expected) in enumerate(zip(ours, theirs, strict=True), 1):
        for i, (after, wanted_after) in enumerate(zip(found, expected, strict=True)):
            when = f"after epoch {epoch}" if seen else "at the end"
            what = f"weights {i} of shape {after.shape} {when}"
            require(after.shape == wanted_after.shape, f"{what} against {wanted_after.shape}")
            if after.ndim == 1 and not tolerance.biases:
                continue
            limit = tolerance.weights_after(epoch)
            whose = "one process with the whole batch"
            weights_near(what, after, whose, wanted_after, start[i], limit)


def weights_near(
    what: str,
    found: npt.NDArray[np.floating],
    whose: str,
    wanted: npt.NDArray[np.floating],
    start: npt.NDArray[np.floating],
    limit: float,
    except_units: int = 0,
) -> None:
    """Require arrays apart by at most `limit`, a share of the distance of `wanted` from `start`.

    The units that are farthest apart, at most `except_units` of the last axis, are left out.
    """
    by_unit = np.linalg.norm((found - wanted).reshape(-1, wanted.shape[-1]), axis=0)
    nearest = np.sort(by_unit)[: len(by_unit) - except_units]
    apart = float(np.linalg.norm(nearest) / np.linalg.norm(wanted - start))
    require(
        apart <= limit,
        f"{what} differ from those of {whose} by {apart:.2g} of the distance that training moved "
        f"them; rounding explains up to {limit:g}",
    )


@check
def makes_adams_steps(run: Run) -> None:
    """Require Adam's steps as NumPy computes them from the audited batches, in float64.

    https://arxiv.org/abs/1412.6980, algorithm 1, with TensorFlow's constants. Each epoch has one
    step, and NumPy starts each from the weights before it, because differences grow from step to
    step. Keras' Adam adds its epsilon before it corrects the bias, which is more than rounding in
    the first steps.
    """
    states = [*_arrays(run, "initial"), *_arrays(run, "epoch")]
    rows: dict[int, list[int]] = {}
    for event in some("audited step", run.of("input")):
        rows.setdefault(event["global_step"], []).extend(event["ids"])
    equal("states of the weights", len(states), 1 + len(rows))
    images, labels = numpy_model.examples(flag_value(run, "data"), "train")
    means, squares = ([np.zeros_like(array, np.float64) for array in states[0]] for _ in range(2))
    rate = flag_value(run, "learning-rate")
    steps = zip(sorted(rows), pairwise(states), strict=True)
    for t, (step, (before, after)) in enumerate(steps, 1):
        arrays = [array.astype(np.float64) for array in before]
        found = numpy_model.gradients(arrays, images[rows[step]], labels[rows[step]])
        for i, gradient in enumerate(found):
            means[i] = 0.9 * means[i] + 0.1 * gradient
            squares[i] = 0.999 * squares[i] + 0.001 * gradient**2
            corrected = means[i] / (1 - 0.9**t), squares[i] / (1 - 0.999**t)
            size = np.sqrt(corrected[1])
            wanted = arrays[i] - rate * corrected[0] / (size + ADAM_EPSILON)
            # Adam moves a weight of a tiny gradient as far as any other, where rounding decides.
            scaled = (after[i] * size, "Adam", wanted * size, arrays[i] * size)
            what = f"weights {i} of shape {wanted.shape} after step {t}, times their gradients,"
            weights_near(what, *scaled, ADAM_APART, UNITS_AT_THE_EDGE)


def _losses_equal(run: Run, reference: Run, tolerance: Tolerance) -> None:
    losses, wanted = loss_by_step(run), loss_by_step(reference)
    equal("global steps", sorted(losses), sorted(wanted))
    first_epoch = run.flags.get("steps-per-epoch") or math.inf
    for step, (loss, examples) in losses.items():
        equal(f"examples in step {step}", examples, wanted[step][1])
        limit = tolerance.loss if step <= first_epoch else tolerance.later_loss
        close(f"loss of step {step}", loss, wanted[step][0], limit)


@check
def epoch_metrics_equal_large_batch(run: Run, reference: Run) -> None:
    """Require the loss and accuracy of each epoch of `reference`, one process with the whole batch.

    Up to the end of the first epoch only rounding differs.
    """
    tolerance = tolerance_of(run)
    wanted = some("epoch of one process", reference.of("epoch", reference.workers[0]))
    for task in run.drivers:
        epochs = some(f"epoch of {task}", run.of("epoch", task))
        equal(f"epochs of {task}", len(epochs), len(wanted))
        for number, (found, expected) in enumerate(zip(epochs, wanted, strict=True), 1):
            what, metrics = f"of {task}'s epoch {number}", found["metrics"]
            limit = tolerance.loss if number == 1 else LATER_METRICS
            close(f"loss {what}", metrics["loss"], expected["metrics"]["loss"], limit)
            pair = metrics["accuracy"], expected["metrics"]["accuracy"]
            require(
                abs(pair[0] - pair[1]) <= LATER_METRICS,
                f"accuracy {what}: {pair[0]!r} against {pair[1]!r}, "
                f"more than {LATER_METRICS:g} apart",
            )


def _steps(run: Run) -> list[int]:
    return sorted({e["global_step"] for e in some("step", run.of("step"))})


def loss_by_step(run: Run) -> dict[int, tuple[float, int]]:
    """Return global step -> (mean loss over all workers' examples, number of these examples)."""
    sums: dict[int, tuple[float, int]] = {}
    for e in some("step", run.of("step")):
        loss, examples = sums.get(e["global_step"], (0.0, 0))
        sums[e["global_step"]] = loss + e["loss"] * e["examples"], examples + e["examples"]
    return {step: (loss / examples, examples) for step, (loss, examples) in sums.items()}


def _arrays(run: Run, when: str) -> list[list[npt.NDArray[np.floating]]]:
    """Return the weights of each report, the same for all workers, from the first's files."""
    reports = {
        task: some(f"{when} weights of {task}", weights(run, when, task)) for task in run.workers
    }
    same(f"{when} weights", {task: [e["digest"] for e in es] for task, es in reports.items()})
    return [numpy_model.weights_in(event["npz"]) for event in reports[run.workers[0]]]
