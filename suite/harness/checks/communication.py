"""Communication: the backend that was asked for, and what TensorFlow really chose."""

from __future__ import annotations

from suite.harness.checks.registry import check, equal, require, same
from suite.harness.run import Run

ACTUAL = ("ring", "nccl")


@check
def collective_is_known(run: Run) -> None:
    """TensorFlow's own log names one implementation, the same for all workers."""
    require(
        run.collective in ACTUAL,
        f"the workers' logs name the collective implementation {run.collective!r}, "
        f"not one of {ACTUAL}",
    )


@check
def backend_as_requested(run: Run) -> None:
    """Every worker asked TensorFlow for the backend that the run asked it for."""
    joined = {e.task: e["backend"] for e in run.of("joined")}
    equal("requested backend", same("requested backend", joined), run.backend)
