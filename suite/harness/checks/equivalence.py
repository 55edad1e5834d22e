"""Equality: N replicas with batch b make the steps of one process with batch N*b."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suite.harness.checks.registry import check, close, equal, require, same, some, weights
from suite.harness.run import Run

# Both sides compute the same numbers in float32, but add them up in another order: within a batch,
# and then over workers. Keras' own correctness tests allow 4e-5, absolute plus relative, between
# distributed and not.
ROUNDING = 4e-5
# Training must have moved each array by so much more that a gradient which is wrong shows. The
# least that a seed has moved one, in the few steps after a checkpoint was restored, was 7.7e-4.
MOVED = 10 * ROUNDING
# How far apart the weights may end, as a share of how far training has moved them (both as L2 norms
# of an array). Rounding alone made 3e-6 of it. But a ReLU whose input is all but 0 may be on in one
# and off in the other, which one seed in nine met: then it was 2e-3, and single weights were as far
# apart as 4e-5. A worker's share that is lost or counted twice makes it a half or more.
APART = 1e-2
# Where layers compute in bfloat16, of 8 bits, each replica rounds its part of a gradient to it.
# Nine seeds gave up to 7e-5 of a loss, and 8e-2 of the way for a convolution's bias, whose gradient
# is a sum of thousands. A share that is lost still shows.
TOLERANCES = {"float32": (ROUNDING, APART), "mixed_bfloat16": (1e-3, 0.3)}


@check
def equals_large_batch(run: Run, reference: Run) -> None:
    """The same loss in every step and the same weights at the end, from the same start, as one."""
    rounding, limit = TOLERANCES[run.flags.get("precision") or "float32"]
    losses, wanted = _loss_by_step(run), _loss_by_step(reference)
    equal("global steps", sorted(losses), sorted(wanted))
    for step, (loss, examples) in losses.items():
        equal(f"examples in step {step}", examples, wanted[step][1])
        close(f"loss of step {step}", loss, wanted[step][0], rounding)
    start, ours = (_arrays(run, when) for when in ("initial", "epoch"))
    start_single, theirs = (_arrays(reference, when) for when in ("initial", "epoch"))
    for i, before in enumerate(start):
        require(np.array_equal(before, start_single[i]), f"initial weights {i} differ")
    for i, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        what = f"final weights {i} of shape {found.shape}"
        require(found.shape == expected.shape, f"{what} against {expected.shape}")
        moved = float(np.max(np.abs(found - start[i])))
        require(moved > MOVED, f"{what} have moved by {moved:.1e} only, less than {MOVED:g}")
        apart = float(np.linalg.norm(found - expected) / np.linalg.norm(expected - start[i]))
        require(
            apart <= limit,
            f"{what}: {apart:.1e} of the way that training moved them apart from one process'; "
            f"{limit:g} is what rounding may come to",
        )


def _loss_by_step(run: Run) -> dict[int, tuple[float, int]]:
    """Global step -> (mean loss over all workers' examples, number of these examples)."""
    sums: dict[int, tuple[float, int]] = {}
    for e in some("step", run.of("step")):
        loss, examples = sums.get(e["global_step"], (0.0, 0))
        sums[e["global_step"]] = loss + e["loss"] * e["examples"], examples + e["examples"]
    return {step: (loss / examples, examples) for step, (loss, examples) in sums.items()}


def _arrays(run: Run, when: str) -> list[npt.NDArray[np.floating]]:
    """The weights of all workers, which must be the same, from the first's file; the last ones."""
    events = {
        task: some(f"{when} weights of {task}", weights(run, when, task))[-1]
        for task in run.workers
    }
    same(f"{when} weights", {task: e["digest"] for task, e in events.items()})
    with np.load(events[run.workers[0]]["npz"]) as archive:
        return [archive[f"arr_{i}"] for i in range(len(archive.files))]
