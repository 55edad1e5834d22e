"""Check layouts: which arrays are replicated on every device, and which are sharded."""

from __future__ import annotations

from typing import Any

from suite.harness.checks.assertions import check, close, equal, only, require, same, some
from suite.harness.core.history import Run

UNSHARDED = "unsharded"  # DTensor's name for a dimension that is not sharded
REFUSED = ("divisible", "evenly divide")  # in TensorFlow's error for shards of unequal size


def _arrays(run: Run, kind: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the layout, the same for all tasks, and all components of each array of a kind."""
    reports = {
        task: only(f"layout that {task} reports", run.of("laid_out", task))[kind]
        for task in run.workers
    }
    found = []
    for number in range(
        same(f"number of {kind}", {t: len(arrays) for t, arrays in reports.items()})
    ):
        sides = {task: arrays[number] for task, arrays in reports.items()}
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
    """Require that every device holds every weight completely, with equal values."""
    _whole_everywhere(run, "weights")


@check
def batch_sharded(run: Run) -> None:
    """Require that each device holds its own part of the batch, and all parts have equal size.

    The parts must not all be the same.
    """
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
    """Require that all devices hold the same gradients, each from its own part of the batch."""
    _whole_everywhere(run, "gradients")


@check
def assigned_is_read(run: Run) -> None:
    """Require that a step reads back the value that it has assigned to a variable."""
    values = only("step that reads", run.of("read_back"))
    require(any(values["assigned"]), f"nothing was assigned: {values['assigned']}")
    for assigned, read in zip(values["assigned"], values["read"], strict=True):
        close("sum read in the step, of what it had assigned", read, assigned, 1e-5)


def _refused(run: Run, what: str) -> list[str]:
    return [e["error"] for e in some("answer", run.of("refused")) if e["what"] == what]


@check
def indivisible_batch_refused(run: Run) -> None:
    """Require a clear error in every way of packing for a batch that the mesh does not divide."""
    for error in some("answer to an indivisible batch", _refused(run, "indivisible batch")):
        said = any(text in error for text in REFUSED)
        require(said, f"no error says that the batch cannot be divided: {error!r}")


@check
def sharded_export_refused(run: Run) -> None:
    """Require that the export of a model with sharded weights fails."""
    error = only("answer to the export of shards", _refused(run, "sharded export"))
    require(error, "a model with weights in shards was exported without an error")
