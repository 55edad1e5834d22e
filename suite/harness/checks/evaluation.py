"""Check evaluations: they cover the whole test set, and use the weights that training left."""

from __future__ import annotations

from collections.abc import Mapping

from suite.harness.checks import numpy_model
from suite.harness.checks.agreement import VALIDATION
from suite.harness.checks.assertions import check, close, flag_value, require, some, weights
from suite.harness.core.history import Run

# A sum in float32 over the test set, in another order.
ROUNDING = 1e-5
# One step changed the loss by 4e-3 at most, in the last 40 of 600 steps of three seeds.
ONE_STEP = 6e-3
LOSSES = ("average_loss", "loss")  # Estimator's loss is a mean over batches


def _evaluated(run: Run) -> Mapping[str, float]:
    """Return the metrics of the last evaluation by a driver or an evaluator."""
    return some("evaluation", run.of("evaluated"))[-1]["metrics"]


@check
def evaluates_the_test_set(run: Run) -> None:
    """Require the loss and the accuracy that NumPy computes with the last weights.

    NumPy evaluates each example of the test set once. When an asynchronous worker evaluates, a step
    of another worker may still be under way.
    """
    metrics = _evaluated(run)
    alone = run.trainer.synchronous or len(run.drivers) == 1
    tolerance, slack = (ROUNDING, 1) if alone else (ONE_STEP, 3)
    reports = some("weights at the end", weights(run, "final", run.drivers[0]))
    images, labels = numpy_model.examples(flag_value(run, "data"), "test")
    arrays = numpy_model.weights_in(reports[-1]["npz"])
    loss, accuracy = numpy_model.evaluate(arrays, images, labels)
    name = next(name for name in LOSSES if name in metrics)
    what = f"of {len(labels)} test examples, against NumPy's"
    close(f"{name} {what}", metrics[name], loss, tolerance)
    # Rounding, or a step, may decide between two classes that are almost equal.
    apart = abs(metrics["accuracy"] - accuracy) * len(labels)
    require(apart < slack + 0.5, f"accuracy {what}: {metrics['accuracy']!r} against {accuracy!r}")


@check
def evaluates_as_last_validated(run: Run) -> None:
    """Require the same metrics of the evaluation at the end and of the last validation."""
    metrics = _evaluated(run)
    task = run.drivers[0]
    last = some(f"epoch of {task}", run.of("epoch", task))[-1]["metrics"]
    validated = {k: v for k, v in last.items() if k.startswith(VALIDATION)}
    for name, value in some("metric of validation", validated.items()):
        own = name.removeprefix(VALIDATION)
        close(f"{own} at the end, against {name}", metrics[own], value, ROUNDING)
