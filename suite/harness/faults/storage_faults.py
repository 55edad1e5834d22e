"""Inject storage faults: damage a checkpoint, or make the disk full or read-only.

Tasks find a damaged checkpoint at restart, so all tasks are killed first.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from suite.harness.cluster.cluster import Cluster
from suite.harness.core.errors import HarnessError
from suite.harness.faults.fault import Fault, Injector
from suite.harness.scenarios import crashes

DISK = "96m"  # size of the separate disk: room for a few saves of the models under test
# Files that non-chief workers write next to the chief's checkpoints, and that are never restored.
OTHERS = ("tmp_", "workertemp_")
FLIPPED = 64  # bytes


def newest(directory: Path) -> Path:
    """Return the newest checkpoint's file of variables; raise HarnessError without one."""
    files = [
        (path, path.stat())
        for path in directory.rglob("*")
        if path.is_file() and not any(part.startswith(OTHERS) for part in path.parts)
    ]
    if not files:
        raise HarnessError(f"there is no checkpoint in {directory}")
    largest = max(found.st_size for _, found in files)
    return max((f.st_mtime, path) for path, f in files if f.st_size > largest / 2)[1]


def truncate(path: Path) -> None:
    """Cut off the second half of the file, as if it had never reached the disk."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def remove(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    """Invert some bytes in the middle of the file, as on a decaying disk."""
    data = bytearray(path.read_bytes())
    start = len(data) // 2
    data[start : start + FLIPPED] = bytes(255 - byte for byte in data[start : start + FLIPPED])
    path.write_bytes(data)


@contextlib.contextmanager
def _ended(cluster: Cluster, task: str, fault: str) -> Iterator[None]:
    """Kill all tasks before the fault and again after it, whatever their reaction."""
    cluster.record("fault_started", task, fault=fault)
    crashes.end_all(cluster)
    yield
    crashes.end_all(cluster)
    cluster.record("fault_ended", task, fault=fault)


def damaged(fault: str, damage: Callable[[Path], None]) -> Injector:
    """Return a fault that damages the newest checkpoint and restores the directory afterwards."""

    @contextlib.contextmanager
    def inject(cluster: Cluster, task: str) -> Iterator[None]:
        directory = Path(cluster.plan.flags["model-dir"])
        copy = directory.with_name(directory.name + "-copy")
        with _ended(cluster, task, fault):
            shutil.copytree(directory, copy)
            damage(newest(directory))
            yield
        shutil.rmtree(directory)
        copy.rename(directory)

    return inject


@contextlib.contextmanager
def empty(cluster: Cluster, task: str) -> Iterator[None]:
    """Restart the task as on another machine, with its own model directory."""
    plan = cluster.plan
    own = Path(plan.flags["model-dir"]).with_name("another-disk")
    with _ended(cluster, task, "empty-disk"):
        cluster.plan = replace(plan, task_flags={task: {"model-dir": own}})
        yield
    cluster.plan = plan


@contextlib.contextmanager
def read_only(cluster: Cluster, task: str) -> Iterator[None]:
    """Make the disk read-only, as a system does after an I/O error; tasks find it so at restart."""
    with _ended(cluster, task, "read-only"):
        cluster.disk("read-only")
        yield
    cluster.disk("whole")


@contextlib.contextmanager
def full(cluster: Cluster, task: str) -> Iterator[None]:
    """Fill the disk while all tasks train."""
    cluster.record("fault_started", task, fault="disk-full")
    cluster.disk("full")
    yield
    cluster.disk("whole")
    cluster.record("fault_ended", task, fault="disk-full")


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "truncated": Fault(
            "the newest checkpoint is cut in half", damaged("truncated", truncate), at_restart=True
        ),
        "missing": Fault(
            "the newest checkpoint is removed", damaged("missing", remove), at_restart=True
        ),
        "bit-flip": Fault(
            "64 bytes of the newest checkpoint are inverted",
            damaged("bit-flip", flip),
            at_restart=True,
        ),
        "empty-disk": Fault("the task returns with another, empty disk", empty, at_restart=True),
        "disk-full": Fault("the disk of the model directory is full", full, on_disk=DISK),
        "read-only": Fault(
            "the disk of the model directory is read-only", read_only, on_disk=DISK, at_restart=True
        ),
    }
)
