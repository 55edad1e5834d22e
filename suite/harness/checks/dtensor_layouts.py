"""Layouts: what lies whole on every device, and what is divided over them."""

from __future__ import annotations

from typing import Any

from suite.harness.checks.assertions import check, close, equal, only, require, same, some
from suite.harness.core.history import Run

UNSHARDED = "unsharded"  # what DTensor calls a dimension that every device has whole
REFUSED = ("divisible", "evenly divide")  # in what TensorFlow says to shards that are not equal


def _arrays(run: Run, kind: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each array of a kind: its layout, as all tasks see it, and the components of all devices."""
    told = {
        task: only(f"layout that {task} tells", run.of("laid_out", task))[kind]
        for task in run.workers
    }
    found = []
    for number in range(same(f"number of {kind}", {t: len(arrays) for t, arrays in told.items()})):
        sides = {task: arrays[number] for task, arrays in told.items()}
        layout = {
            key: same(f"{key} of {kind} {number}", {t: a[key] for t, a in sides.items()})
            for key in ("specs", "shape")
        }
        components = [part for array in sides.values() for part in array["components"]]
        devices = {part["device"] for part in components}
        equal(f"devices that hold {kind} {number}", len(devices), run.replicas)
        equal(f"components of {kind} {number}", len(components), run.replicas)
        found.append((layout, components))
    return some(f"array of {kind}", found)


def _whole_everywhere(run: Run, kind: str) -> None:
    for number, (layout, components) in enumerate(_arrays(run, kind)):
        what = f"{kind} {number} of shape {layout['shape']}"
        equal(f"layout of {what}", set(layout["specs"]), {UNSHARDED})
        same(f"components of {what}", {part["device"]: part["digest"] for part in components})


@check
def weights_replicated(run: Run) -> None:
    """Every device holds every weight, whole and the same."""
    _whole_everywhere(run, "weights")


@check
def batch_sharded(run: Run) -> None:
    """Every device has its own part of the batch, of equal size; together they are all of it."""
    for number, (layout, components) in enumerate(_arrays(run, "batch")):
        what = f"batch {number} of shape {layout['shape']}"
        require(layout["specs"][0] != UNSHARDED, f"{what} is not divided: {layout['specs']}")
        wanted = [layout["shape"][0] // run.replicas, *layout["shape"][1:]]
        for part in components:
            equal(f"part of {what} on {part['device']}", part["shape"], wanted)
        digests = {part["digest"] for part in components}
        require(len(digests) > 1, f"all devices have the same part of {what}")


@check
def gradients_reduced(run: Run) -> None:
    """Though each device has its own part of the batch, all hold the same gradients."""
    _whole_everywhere(run, "gradients")


@check
def assigned_is_read(run: Run) -> None:
    """What a step reads from a variable after it has assigned to it is what it has assigned."""
    told = only("step that reads", run.of("read_back"))
    require(any(told["assigned"]), f"nothing was assigned: {told['assigned']}")
    for assigned, read in zip(told["assigned"], told["read"], strict=True):
        close("sum read in the step, of what it had assigned", read, assigned, 1e-5)


def _refused(run: Run, what: str) -> list[str]:
    return [e["error"] for e in some("answer", run.of("refused")) if e["what"] == what]


@check
def indivisible_batch_refused(run: Run) -> None:
    """A batch that the mesh does not divide is an error, in every way of packing, that says so."""
    for error in some("answer to an indivisible batch", _refused(run, "indivisible batch")):
        said = any(text in error for text in REFUSED)
        require(said, f"no error says that the batch cannot be divided: {error!r}")


@check
def sharded_export_refused(run: Run) -> None:
    """A model whose weights are not replicated cannot be exported."""
    error = only("answer to the export of shards", _refused(run, "sharded export"))
    require(error, "a model with weights in shards was exported, and nobody refused")
