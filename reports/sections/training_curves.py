"""Loss per global step and metrics per epoch, from the event files of healthy clusters.

A cluster is healthy if no task was restarted, faulted or restored and every task that trained also
finished. Of several equal clusters the longest is shown, with the number of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.rundir import event_files
from reports.rundir.frame import RunFrames

FAULT_EVENTS = ("fault_started", "peer_lost", "restored", "unsupported")
TRAINING = ("step", "epoch")
COLUMNS = (
    Column("backend"),
    Column("workers", right=True),
    Column("steps", right=True),
    Column("first loss", right=True),
    Column("last loss", right=True),
    Column("epochs", right=True),
    Column("epoch loss", right=True),
    Column("epoch accuracy", right=True),
    Column("cluster"),
)


@dataclass(frozen=True)
class Curve:
    """Training of one healthy cluster."""

    cluster: str  # directory of its event files, below events/
    trainer: str
    keras: str
    backend: str  # as requested
    workers: int
    steps: tuple[tuple[int, float], ...] = ()  # global step, mean loss of the tasks' batches
    epochs: tuple[tuple[int, Mapping[str, float]], ...] = ()  # completed epochs, metrics
    alike: int = 0  # healthy clusters of the same kind that are not shown

    @property
    def name(self) -> str:
        return approach(self.trainer, self.keras)

    @property
    def label(self) -> str:
        """Return Keras flavor, backend and workers, which distinguish curves of one approach."""
        parts = [part for part in (self.keras, self.backend) if part not in ("", "none")]
        return ", ".join([*parts, plural(self.workers, "worker")])


@dataclass
class _Cluster:
    """Parsed content of the event files of one cluster."""

    facts: dict[str, Any] = field(default_factory=dict)
    losses: dict[int, list[float]] = field(default_factory=dict)
    epochs: dict[str, dict[int, Mapping[str, float]]] = field(default_factory=dict)
    chief: str = ""
    tasks_that_trained: set[str] = field(default_factory=set)
    tasks_that_finished: set[str] = field(default_factory=set)
    has_faults: bool = False

    def add(self, event: Mapping[str, Any]) -> None:
        name, task = event["event"], event["task"]
        self.has_faults |= name in FAULT_EVENTS or event["attempt"] > 0
        if name in TRAINING:
            self.tasks_that_trained.add(task)
        if name == "started":
            self.facts |= {"trainer": event["trainer"], "keras": _flavor(event["keras"])}
        elif name == "joined":
            self.facts |= {"backend": event["backend"], "workers": int(event["workers"])}
            self.chief = task if event["chief"] else self.chief
        elif name == "step" and _number(event["loss"]):
            self.losses.setdefault(int(event["global_step"]), []).append(float(event["loss"]))
        elif name == "epoch":
            metrics = {key: float(v) for key, v in event["metrics"].items() if _number(v)}
            self.epochs.setdefault(task, {})[int(event["epoch"])] = metrics
        elif name == "finished":
            self.tasks_that_finished.add(task)

    def curve(self, cluster: str) -> Curve | None:
        whole = (
            self.tasks_that_trained
            and self.tasks_that_trained <= self.tasks_that_finished
            and not self.has_faults
        )
        if not whole or not {"trainer", "backend"} <= set(self.facts):
            return None
        epochs = self.epochs.get(self.chief) or next(iter(self.epochs.values()), {})
        steps = ((step, fmean(losses)) for step, losses in sorted(self.losses.items()))
        return Curve(
            cluster, **self.facts, steps=tuple(steps), epochs=tuple(sorted(epochs.items()))
        )


def _flavor(keras: str) -> str:
    """Return the flavor as in the tables: `keras3 3.15.1` for a task's `keras 3.15.1`."""
    package, _, version = keras.partition(" ")
    return f"keras{version.split('.')[0]} {version}" if package == "keras" else keras


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def read(run_dir: Path) -> list[Curve]:
    """Return the curves of all healthy clusters, sorted; [] if there are no event files."""
    clusters: dict[str, _Cluster] = {}
    root = run_dir / event_files.EVENTS
    for path in sorted(root.rglob("*.jsonl")):
        cluster = clusters.setdefault(str(path.parent.relative_to(root)), _Cluster())
        if not _read_file(path, cluster):
            cluster.has_faults = True
    curves = (cluster.curve(name) for name, cluster in clusters.items())
    return sorted(filter(None, curves), key=lambda c: (c.name, c.backend, c.workers, c.cluster))


def _read_file(path: Path, cluster: _Cluster) -> bool:
    """Add the events of the file to `cluster`; return False if a line is not an event."""
    try:
        for event in event_files.of_file(path):
            cluster.add(event)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def shown(curves: Iterable[Curve]) -> list[Curve]:
    """Return the longest curve of each approach, backend and number of workers."""
    kinds: dict[tuple, list[Curve]] = {}
    for curve in curves:
        key = (curve.trainer, curve.keras, curve.backend, curve.workers)
        kinds.setdefault(key, []).append(curve)
    longest = (max(alike, key=_length) for alike in kinds.values())
    counts = (len(alike) - 1 for alike in kinds.values())
    return [
        Curve(**{**curve.__dict__, "alike": alike})
        for curve, alike in zip(longest, counts, strict=True)
    ]


def _length(curve: Curve) -> tuple[int, int]:
    return len(curve.epochs), len(curve.steps)


def table(curves: Iterable[Curve]) -> Table:
    """Return first and last loss and the last epoch's metrics of these curves."""
    lines = []
    for curve in curves:
        last = dict(curve.epochs[-1][1]) if curve.epochs else {}
        cells = (
            curve.backend or MISSING,
            str(curve.workers),
            str(curve.steps[-1][0]) if curve.steps else MISSING,
            figure(curve.steps[0][1] if curve.steps else None, 4),
            figure(curve.steps[-1][1] if curve.steps else None, 4),
            str(curve.epochs[-1][0]) if curve.epochs else MISSING,
            figure(last.get("loss"), 4),
            figure(last.get("accuracy"), 4),
            curve.cluster + (f" (and {curve.alike} similar)" if curve.alike else ""),
        )
        lines.append(Row(curve.name, cells))
    note = (
        "Loss: mean over the batches of all workers in a global step. Epoch metrics: those of the "
        "chief."
    )
    if not lines:
        note = "The run directory has no event files of a healthy cluster."
    return Table("Training curves", COLUMNS, tuple(lines), note)


def of_run(run: RunFrames) -> list[Curve]:
    """Return the curves that the report of this run shows."""
    return shown(read(run.directory))
