"""Check communication: the requested backend, and the implementation that TensorFlow chose."""

from __future__ import annotations

from suite.harness.checks.assertions import check, equal, require, same, some
from suite.harness.core.history import Run
from suite.harness.metrics.collective_bandwidth import packs

ACTUAL = ("ring", "nccl")


@check
def collective_is_known(run: Run) -> None:
    """Require that TensorFlow's log names one implementation, the same for all workers."""
    require(
        run.collective in ACTUAL,
        f"the workers' logs name the collective implementation {run.collective!r}, "
        f"not one of {ACTUAL}",
    )


@check
def backend_as_requested(run: Run) -> None:
    """Require that every worker requested the run's backend from TensorFlow."""
    joined = {e.task: e["backend"] for e in run.of("joined")}
    equal("requested backend", same("requested backend", joined), run.backend)


@check
def collective_results_are_right(run: Run) -> None:
    """Require that each rank gets the exact result of each operation, in every iteration."""
    for worker in run.workers:
        for event in some(f"collective of {worker}", run.of("collective", worker)):
            wrong = event["wrong"] or {}
            by = f"{event['peer']}: " if event.get("peer") else ""
            require(
                not wrong,
                f"{by}{event['op']} of {event['bytes']} bytes gave {worker} {wrong.get('got')!r} "
                f"at position {wrong.get('position')} in iteration {wrong.get('iteration')}, "
                f"not {wrong.get('wanted')!r}",
            )


@check
def tensors_are_packed(run: Run) -> None:
    """Require that an all-reduce of several tensors uses several packs, as requested."""
    found = packs(run)
    require(bool(found), "the workers' logs show no all-reduce of several tensors")
    require(
        min(found) > 1,
        f"with {run.flags.get('bytes-per-pack')} bytes per pack all tensors were reduced in one",
    )
