"""Check learning: loss falls, accuracy rises, and several workers converge like one."""

from __future__ import annotations

import math
import re
from itertools import pairwise

from suite.harness.checks.assertions import check, require, some
from suite.harness.core.history import Run

VISIBLE = 0.02  # share by which a loss falls, above the noise between batches
# Least share by which the loss falls from the first epoch to the last. For the thousand examples of
# an epoch, chance makes 0.005 either way, and with plain SGD the loss falls by 0.026 to 0.15.
FALLEN = 0.01
# Least gain of accuracy from the first epoch to the last. For the thousand examples of an epoch,
# chance makes about 0.01 either way. The trainers gain 0.12 and more.
GAINED = 0.05


def metric_by_epoch(run: Run, name: str, task: str | None = None) -> list[float]:
    """Return a metric after each epoch, as reported by `task` or the first driver."""
    epochs = run.of("epoch", task or run.drivers[0])
    return [e["metrics"][name] for e in epochs if name in e["metrics"]]


def _falls(what: str, values: list[float], least: float) -> None:
    """Require that each value is below the one before, and the last by `least` below the first."""
    require(len(values) > 1, f"{what}: {values}, too few to show a direction")
    require(all(math.isfinite(v) for v in values), f"{what} is not finite: {values}")
    pairs = pairwise(values)
    require(all(later < earlier for earlier, later in pairs), f"{what} does not fall: {values}")
    fallen = values[0] - values[-1]
    require(fallen >= least, f"{what} falls by {fallen:.4f} only, not {least:.4f}: {values}")


@check
def loss_falls(run: Run) -> None:
    """Require that the training loss falls after each epoch."""
    losses = metric_by_epoch(run, "loss")
    _falls("loss after each epoch", losses, FALLEN * abs(losses[0]) if losses else 0.0)


@check
def accuracy_rises(run: Run) -> None:
    """Require that the training accuracy rises after each epoch."""
    accuracy = metric_by_epoch(run, "accuracy")
    _falls("one minus the accuracy after each epoch", [1.0 - value for value in accuracy], GAINED)


def _ends(values: list[float]) -> tuple[float, float, int]:
    """Return the means of the first and the last third, and the number of values in each."""
    third = max(1, len(values) // 3)
    return sum(values[:third]) / third, sum(values[-third:]) / third, third


@check
def step_losses_fall(run: Run) -> None:
    """Require that the mean loss of all workers' steps falls from the first third to the last."""
    losses = [e["loss"] for e in run.of("step")]
    require(len(losses) >= 6, f"there are only {len(losses)} steps: {losses}")
    first, last, _ = _ends(losses)
    require(
        last < (1 - VISIBLE) * first,
        f"mean loss of the first third of the steps {first:.4f}, of the last {last:.4f}: "
        f"it does not fall by {VISIBLE:.0%}",
    )


def losses_in_summaries(run: Run) -> list[float]:
    """Return the training losses that the first driver with any writes by tf.summary.scalar.

    The last part of such a name is "loss", or ends with it, and no part names an evaluation.
    """
    for task in run.drivers:
        losses = [e["value"] for e in run.of("scalar", task) if _is_training_loss(e["name"])]
        if losses:
            return losses
    return []


def _is_training_loss(name: str) -> bool:
    words = re.split(r"[^a-z0-9]+", name.lower())
    return words[-1] == "loss" and not set(words) & {"val", "validation", "eval", "test"}


@check
def losses_in_summaries_fall(run: Run) -> None:
    """Require that the training losses that a program writes for TensorBoard fall."""
    losses = some("training loss in a summary", losses_in_summaries(run))
    require(all(map(math.isfinite, losses)), f"a loss in a summary is not finite: {losses}")
    first, last, third = _ends(losses)
    require(
        last < first - FALLEN * abs(first),
        f"training losses in summaries do not fall by {FALLEN:.0%}: of {len(losses)} the first "
        f"{third} have a mean of {first:.4f}, the last {third} one of {last:.4f}",
    )


@check
def converges_to_baseline(run: Run, reference: Run, share: float = 0.25) -> None:
    """Require that the loss falls as far as that of one process, within `share`.

    The fall counts from the first step, of fresh weights, because the first epoch may already make
    most of it. The check is two-sided: a run that learns much more than the baseline trained on
    something else.
    """
    fallen, wanted = _fallen("loss", run), _fallen("loss of the baseline", reference)
    require(wanted > 0, f"the baseline itself learns nothing: its loss fell by {wanted:.4f}")
    require(
        abs(fallen - wanted) <= share * wanted,
        f"the loss fell by {fallen:.4f} ({metric_by_epoch(run, 'loss')}), the baseline's by "
        f"{wanted:.4f} ({metric_by_epoch(reference, 'loss')}), more than {share:.0%} apart",
    )


def _fallen(what: str, run: Run) -> float:
    first = some(f"first {what}", run.of("step", run.drivers[0]))[0]["loss"]
    return first - some(what, metric_by_epoch(run, "loss"))[-1]
