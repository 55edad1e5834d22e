"""The history of one cluster: what its tasks wrote, what the harness did to them, how they ended.

Everything that judges or measures reads a Run and nothing else, so that a check can be tried on a
made-up history and a second engine can stand beside the local one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from reports.core import text
from reports.rundir import event_files
from suite.harness.core import backends, topology

COMMON = tuple(event_files.COMMON)
READ_BYTES = 65_536  # at a time; an event file grows by less between two looks
NUMBER = (int, float)
# What waits, checks and measurements compare and add up.
FIELDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("step", "global_step", "steps", "iterations", "workers", "replicas"), NUMBER),
    # None in the documents' bare calls, which know none of these.
    **dict.fromkeys(("loss", "examples", "epoch"), (*NUMBER, type(None))),
    "metrics": (dict,),
}
HARNESS_EVENTS = "harness.jsonl"  # what the harness knows, beside the event files of the tasks


@dataclass(frozen=True)
class Event:
    """One line of the history; `time_s` is CLOCK_MONOTONIC, so all of a machine's tasks compare."""

    name: str
    time_s: float
    task: str
    attempt: int
    data: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)

    @classmethod
    def parse(cls, line: str) -> Event:
        """Read one JSON line; ValueError, in one line, when it is not an event."""
        record = event_files.parse(line)
        name, time_s, task, attempt = (record.pop(key) for key in COMMON)
        for key in FIELDS.keys() & record.keys():
            event_files.must_be(record, key, FIELDS[key])
        return cls(name, float(time_s), task, attempt, record)

    def line(self) -> str:
        """The JSON line that `parse` reads."""
        common = zip(COMMON, (self.name, self.time_s, self.task, self.attempt), strict=True)
        return json.dumps({**dict(common), **self.data}) + "\n"


class Tail:
    """Reads the lines that have been added to an event file since the last look.

    It keeps the file open until `close`, so that a look costs one read(2).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.partial = b""
        self.lines = 0  # read so far
        # FILE:LINE and why, for the first line that is no event; reading ends there
        self.refused = ""

    def read(self) -> list[Event]:
        if self.descriptor is None:
            try:
                self.descriptor = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return []
        new = []
        while data := os.read(self.descriptor, READ_BYTES):
            new.append(data)
        if not new:
            return []
        *complete, self.partial = b"".join([self.partial, *new]).split(b"\n")
        return self._parse(complete)

    def _parse(self, lines: Iterable[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if self.refused:
                break
            self.lines += 1
            try:
                events += [Event.parse(line.decode())] if line else []
            except ValueError as error:
                self.refused = f"{self.path}:{self.lines}: {error}"
        return events

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


@dataclass(frozen=True)
class Run:
    """One cluster's life, over all attempts of its tasks."""

    trainer: Trainer
    tasks: tuple[str, ...]
    workers: tuple[str, ...]  # the tasks that train, in order
    backend: str
    keras: str
    events: tuple[Event, ...]
    flags: Mapping[str, Any] = field(default_factory=dict)
    directory: Path = Path(".")
    logs: Mapping[tuple[str, int], Path] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _by_name(self) -> dict[str, list[Event]]:
        """Events of the names that were asked for."""
        return {}

    def of(self, name: str, task: str | None = None, attempt: int | None = None) -> list[Event]:
        """Events of one name in time order, of one task and incarnation where these are given."""
        if name not in self._by_name:
            self._by_name[name] = of(self.events, name)
        found = self._by_name[name]
        return list(found) if task is attempt is None else of(found, name, task, attempt)

    def exit_of(self, task: str, attempt: int | None = None) -> Event | None:
        """How the task's last (or that) incarnation ended; None while it lives."""
        exits = self.of("exited", task, attempt)
        spawned = self.of("spawned", task, attempt)
        if not exits or (attempt is None and spawned and exits[-1].attempt < spawned[-1].attempt):
            return None
        return exits[-1]

    def failure_of(self, task: str, after_s: float) -> Event | None:
        """What first told after that time that the task fails: its `peer_lost`, else its end."""
        told = [*self.of("peer_lost", task), *self.of("exited", task)]
        return next((e for e in in_order(told) if e.time_s > after_s), None)

    def log(self, task: str, attempt: int | None = None) -> str:
        """What the task printed; of its last incarnation unless another is named."""
        path = self._log_path(task, attempt)
        return path.read_text(errors="replace") if path and path.exists() else ""

    def end_of_log(self, task: str) -> str:
        """Return the end of what the task printed last, fit to be shown, however long the log."""
        path = self._log_path(task)
        return text.end_of(path, text.END_BYTES) if path else ""

    def _log_path(self, task: str, attempt: int | None = None) -> Path | None:
        attempts = [a for t, a in self.logs if t == task]
        wanted = attempt if attempt is not None else max(attempts, default=0)
        return self.logs.get((task, wanted))

    @property
    def devices(self) -> int:
        """Devices of each task, as asked for; there is a replica on each."""
        return int(self.flags.get("devices") or 1)

    @property
    def replicas(self) -> int:
        """All replicas that train, as asked for."""
        return self.devices * len(self.workers)

    @property
    def drivers(self) -> tuple[str, ...]:
        """The tasks that run the training loop and tell of it, in order, the chief first."""
        return topology.drivers(self.tasks, self.workers)

    def made_by(self, worker: str, after_s: float = 0.0) -> list[Event]:
        """What is told of each step that this worker began after that time, in time order.

        A coordinator tells of many at once, when the last of them has come back, so those which it
        gave out before that time are left out.
        """
        if worker in self.drivers:
            given = self.of("scheduled", worker)
            if given:
                after_s = min((e.time_s for e in given if e.time_s > after_s), default=math.inf)
            return [e for e in self.of(self.trainer.progress, worker) if e.time_s > after_s]
        given_out: dict[tuple[str, int], float] = {}
        made: list[Event] = []
        for event in self.events:
            if event.name == "scheduled":
                given_out[event.task, event.attempt] = event.time_s
            elif event.name == "executed":
                begun = given_out.get((event.task, event.attempt), 0.0) > after_s
                made += [event] * (event["by"].get(worker, 0) if begun else 0)
        return made

    @property
    def collective(self) -> str:
        """The implementation that TensorFlow really chose: ring, nccl or none."""
        return backends.actual(self.assigned)

    @property
    def assigned(self) -> frozenset[str]:
        """Collectives to which the last incarnations of the workers assigned an implementation."""
        paths = map(self._log_path, self.workers)
        return frozenset().union(*(backends.assigned(path) for path in paths if path))

    @property
    def attempts(self) -> int:
        """How often the most restarted task was started."""
        return 1 + max((e.attempt for e in self.events), default=0)


def of(
    events: Iterable[Event], name: str, task: str | None = None, attempt: int | None = None
) -> list[Event]:
    """Events of one name, of one task and incarnation where these are given, as they stand."""
    return [
        e
        for e in events
        if e.name == name
        and (task is None or e.task == task)
        and (attempt is None or e.attempt == attempt)
    ]


def read(directory: Path) -> tuple[Event, ...]:
    """The history of a cluster from its directory of event files, less what is half a line.

    ValueError for a line that is no event.
    """
    tails = [Tail(path) for path in sorted(directory.glob("*.jsonl"))]
    try:
        events = in_order(event for tail in tails for event in tail.read())
    finally:
        for tail in tails:
            tail.close()
    for tail in tails:
        if tail.refused:
            raise ValueError(tail.refused)
    return events


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """One history from many files; the sort is stable, so a task's own order survives ties."""
    return tuple(sorted(events, key=lambda e: e.time_s))
