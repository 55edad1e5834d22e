"""Faults of what is stored: a checkpoint is damaged, or the disk takes no more.

A damaged checkpoint is found by those who are started again, so all are ended first.
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
from suite.harness.faults.fault import Fault, Strike
from suite.harness.scenarios import crashes

DISK = "96m"  # of a disk of its own: some saves of the models with which approaches are examined
# What workers other than the chief write beside its checkpoints, and nobody restores.
OTHERS = ("tmp_", "workertemp_")
FLIPPED = 64  # bytes


def newest(directory: Path) -> Path:
    """The file that holds the variables of the newest checkpoint; HarnessError without one."""
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
    """The second half of the file never reached the disk."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def remove(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    """Some bytes in its middle have other values, as on a disk that rots."""
    data = bytearray(path.read_bytes())
    start = len(data) // 2
    data[start : start + FLIPPED] = bytes(255 - byte for byte in data[start : start + FLIPPED])
    path.write_bytes(data)


@contextlib.contextmanager
def _ended(cluster: Cluster, task: str, fault: str) -> Iterator[None]:
    """All have ended when the fault comes and, whatever they do about it, when it is over."""
    cluster.tell("fault_started", task, fault=fault)
    crashes.end_all(cluster)
    yield
    crashes.end_all(cluster)
    cluster.tell("fault_ended", task, fault=fault)


def damaged(fault: str, damage: Callable[[Path], None]) -> Strike:
    """The newest checkpoint is damaged; afterwards all is there as it was."""

    @contextlib.contextmanager
    def strike(cluster: Cluster, task: str) -> Iterator[None]:
        directory = Path(cluster.plan.flags["model-dir"])
        copy = directory.with_name(directory.name + "-copy")
        with _ended(cluster, task, fault):
            shutil.copytree(directory, copy)
            damage(newest(directory))
            yield
        shutil.rmtree(directory)
        copy.rename(directory)

    return strike


@contextlib.contextmanager
def empty(cluster: Cluster, task: str) -> Iterator[None]:
    """The task comes back on another machine, where the model directory is not the others'."""
    plan = cluster.plan
    own = Path(plan.flags["model-dir"]).with_name("another-disk")
    with _ended(cluster, task, "empty-disk"):
        cluster.plan = replace(plan, task_flags={task: {"model-dir": own}})
        yield
    cluster.plan = plan


@contextlib.contextmanager
def read_only(cluster: Cluster, task: str) -> Iterator[None]:
    """The disk is found read-only, as after an error that made the system mount it so."""
    with _ended(cluster, task, "read-only"):
        cluster.disk("read-only")
        yield
    cluster.disk("whole")


@contextlib.contextmanager
def full(cluster: Cluster, task: str) -> Iterator[None]:
    """Somebody else has filled the disk, while all train."""
    cluster.tell("fault_started", task, fault="disk-full")
    cluster.disk("full")
    yield
    cluster.disk("whole")
    cluster.tell("fault_ended", task, fault="disk-full")


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "truncated": Fault(damaged("truncated", truncate), at_restart=True),
        "missing": Fault(damaged("missing", remove), at_restart=True),
        "bit-flip": Fault(damaged("bit-flip", flip), at_restart=True),
        "empty-disk": Fault(empty, at_restart=True),
        "disk-full": Fault(full, on_disk=DISK),
        "read-only": Fault(read_only, on_disk=DISK, at_restart=True),
    }
)
