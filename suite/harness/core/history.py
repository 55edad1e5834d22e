"""The history of one cluster: events of its tasks, actions of the harness, exits.

Checks and measurements read only a Run, so that a check can be tested on a synthetic history and a
second engine can run next to the local one.
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
READ_BYTES = 65_536  # per read; an event file grows by less between two reads
NUMBER = (int, float)
# Types of the fields that waits, checks and measurements compare and add up.
FIELDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("step", "global_step", "steps", "epoch", "iterations"), NUMBER),
    **dict.fromkeys(("workers", "replicas"), NUMBER),
    # None where the program does not report them.
    **dict.fromkeys(("loss", "examples"), (*NUMBER, type(None))),
    "metrics": (dict,),
}
HARNESS_EVENTS = "harness.jsonl"  # events of the harness, next to the event files of the tasks


@dataclass(frozen=True)
class Event:
    """One line of the history; `time_s` is CLOCK_MONOTONIC of the machine on which pytest runs."""

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
        """Parse one JSON line; raise ValueError, in one line, if it is not an event."""
        record = event_files.parse(line)
        name, time_s, task, attempt = (record.pop(key) for key in COMMON)
        for key in FIELDS.keys() & record.keys():
            event_files.must_be(record, key, FIELDS[key])
        return cls(name, float(time_s), task, attempt, record)

    def line(self) -> str:
        """Return the JSON line that `parse` reads."""
        common = zip(COMMON, (self.name, self.time_s, self.task, self.attempt), strict=True)
        return json.dumps({**dict(common), **self.data}) + "\n"


class Tail:
    """Read the lines that were appended to an event file since the last read.

    The file stays open until `close`, so that a read without new lines costs one read(2).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.partial = b""
        self.lines = 0  # read so far
        # FILE:LINE and the reason, for the first malformed line; reading stops there
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
    """One cluster from start to end, over all attempts of its tasks."""

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
    # By how much the times of two tasks may be wrong in their difference; 0 on one machine.
    clock_error_s: float = 0.0

    def surely_before(self, first: Event, second: Event) -> bool:
        """Return True if the first event came before the second, whatever the clocks' error."""
        error_s = 0.0 if first.task == second.task else self.clock_error_s
        return first.time_s < second.time_s - error_s

    @cached_property
    def _by_name(self) -> dict[str, list[Event]]:
        """Return the cache of events by name, which `of` fills."""
        return {}

    def of(self, name: str, task: str | None = None, attempt: int | None = None) -> list[Event]:
        """Return events of one name in time order, optionally of one task and attempt."""
        if name not in self._by_name:
            self._by_name[name] = of(self.events, name)
        found = self._by_name[name]
        return list(found) if task is attempt is None else of(found, name, task, attempt)

    def exit_of(self, task: str, attempt: int | None = None) -> Event | None:
        """Return the exit event of the task's last (or the given) attempt; None while alive."""
        exits = self.of("exited", task, attempt)
        spawned = self.of("spawned", task, attempt)
        if not exits or (attempt is None and spawned and exits[-1].attempt < spawned[-1].attempt):
            return None
        return exits[-1]

    def failure_of(self, task: str, after_s: float) -> Event | None:
        """Return the first sign after that time that the task fails: `peer_lost` or its exit."""
        signs = [*self.of("peer_lost", task), *self.of("exited", task)]
        return next((e for e in in_order(signs) if e.time_s > after_s), None)

    def log(self, task: str, attempt: int | None = None) -> str:
        """Return the task's output; of its last attempt by default."""
        path = self._log_path(task, attempt)
        return path.read_text(errors="replace") if path and path.exists() else ""

    def end_of_log(self, task: str) -> str:
        """Return the end of the last attempt's output, short enough to print."""
        path = self._log_path(task)
        return text.end_of(path, text.END_BYTES) if path else ""

    def _log_path(self, task: str, attempt: int | None = None) -> Path | None:
        attempts = [a for t, a in self.logs if t == task]
        wanted = attempt if attempt is not None else max(attempts, default=0)
        return self.logs.get((task, wanted))

    @property
    def devices(self) -> int:
        """Return the requested number of devices of each task; each device has one replica."""
        return int(self.flags.get("devices") or 1)

    @property
    def replicas(self) -> int:
        """Return the requested number of training replicas."""
        return self.devices * len(self.workers)

    @property
    def drivers(self) -> tuple[str, ...]:
        """Return the tasks that run the training loop and report its events, the chief first."""
        return topology.drivers(self.tasks, self.workers)

    def steps_of(self, worker: str, after_s: float = 0.0) -> list[Event]:
        """Return the events of the steps that this worker began after that time, in time order.

        A coordinator reports many steps at once, when the last of them has completed. Steps that it
        scheduled before that time are left out.
        """
        if worker in self.drivers:
            scheduled = self.of("scheduled", worker)
            if scheduled:
                after_s = min((e.time_s for e in scheduled if e.time_s > after_s), default=math.inf)
            return [e for e in self.of(self.trainer.progress, worker) if e.time_s > after_s]
        scheduled_s: dict[tuple[str, int], float] = {}
        steps: list[Event] = []
        for event in self.events:
            if event.name == "scheduled":
                scheduled_s[event.task, event.attempt] = event.time_s
            elif event.name == "executed":
                is_later = scheduled_s.get((event.task, event.attempt), 0.0) > after_s
                steps += [event] * (event["by"].get(worker, 0) if is_later else 0)
        return steps

    @property
    def collective(self) -> str:
        """Return the implementation that TensorFlow chose: ring, nccl or none."""
        return backends.actual(self.assigned)

    @property
    def assigned(self) -> frozenset[str]:
        """Return the implementations that the resolver assigned in the workers' last attempts."""
        paths = map(self._log_path, self.workers)
        return frozenset().union(*(backends.assigned(path) for path in paths if path))

    @property
    def attempts(self) -> int:
        """Return the number of starts of the most restarted task."""
        return 1 + max((e.attempt for e in self.events), default=0)


def of(
    events: Iterable[Event], name: str, task: str | None = None, attempt: int | None = None
) -> list[Event]:
    """Return events of one name, optionally of one task and attempt, in the given order."""
    return [
        e
        for e in events
        if e.name == name
        and (task is None or e.task == task)
        and (attempt is None or e.attempt == attempt)
    ]


def read(directory: Path) -> tuple[Event, ...]:
    """Return the history of a cluster from its directory of event files, without incomplete lines.

    Raise ValueError for a malformed line.
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
    """Sort events of many files by time; the sort is stable, so ties keep a task's own order."""
    return tuple(sorted(events, key=lambda e: e.time_s))
