"""Check agreement: all replicas of a synchronous run report the same and hold the same weights."""

from __future__ import annotations

from itertools import groupby

from suite.harness.checks.assertions import check, equal, require, same, some, weights
from suite.harness.core.history import Run

VALIDATION = "val_"


def _metrics(run: Run, task: str, validation: bool) -> list[dict[str, float]]:
    """Return the task's metrics of training or of validation after each epoch."""
    return [
        {k: v for k, v in e["metrics"].items() if k.startswith(VALIDATION) == validation}
        for e in run.of("epoch", task)
    ]


def _agree(run: Run, validation: bool) -> None:
    what = "metrics of validation" if validation else "metrics of training"
    sides = {task: _metrics(run, task, validation) for task in run.workers}
    require(len(sides) > 1, f"{what}: one worker alone cannot agree")
    common = same(f"{what} after each epoch", sides)
    require(common and all(common), f"there are no {what}: {common}")


@check
def workers_agree_on_metrics(run: Run) -> None:
    """Require that all workers report bit-identical loss and metrics at every epoch."""
    _agree(run, validation=False)


@check
def validation_agrees(run: Run) -> None:
    """Require that all workers report bit-identical validation metrics at every epoch."""
    _agree(run, validation=True)


@check
def workers_agree_on_weights(run: Run) -> None:
    """Require that all workers hold the same weights after each epoch and at the end.

    The weights must have changed.
    """
    require(len(run.workers) > 1, "one worker alone cannot agree")
    # A repeated report counts once. An Estimator that is made of a Keras model saves a first
    # checkpoint in a session of its own, which a worker skips if it finds the one of its peer.
    sides = {
        task: [
            state
            for state, _ in groupby(
                (e["when"], e["global_step"], e["digest"]) for e in run.of("weights", task)
            )
        ]
        for task in run.workers
    }
    common = some("digest of weights", same("weights (when, global step, digest)", sides))
    digests = [digest for _, _, digest in common]
    require(digests[0] != digests[-1], f"training changed no weights: {digests}")
    for task in run.workers:
        some(f"final weights of {task}", weights(run, "final", task))


@check
def replica_on_each_device(run: Run) -> None:
    """Require that each worker counts as many replicas as workers times devices."""
    for task in run.workers:
        joined = some(f"joined event of {task}", run.of("joined", task))[-1]
        equal(f"replicas that {task} counts", joined["replicas"], run.replicas)


@check
def replicas_in_sync(run: Run) -> None:
    """Require that all devices hold the same weights after each epoch, and that they change."""
    for task in run.workers:
        reports = some(f"weights of {task}", run.of("weights", task))
        for e in reports:
            where = f"copies of {task}'s {e['when']} weights at step {e['global_step']}"
            # A user's program chooses its devices.
            devices = len(e["copies"]) if run.trainer.of_user else run.devices
            equal(where, e["copies"], [e["digest"]] * devices)
        require(
            reports[0]["digest"] != reports[-1]["digest"], f"training changed no weights of {task}"
        )
