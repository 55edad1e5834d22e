"""The history of one cluster: what its tasks wrote, what the harness did to them, how they ended.

Everything that judges or measures reads a Run and nothing else, so that a check can be tried on a
made-up history and a second engine can stand beside the local one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness import backends, topology

COMMON = ("event", "time_s", "task", "attempt")
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
        """Read one JSON line; ValueError when it is not an event."""
        record = json.loads(line)
        try:
            name, time_s, task, attempt = (record.pop(key) for key in COMMON)
        except (KeyError, AttributeError) as error:
            raise ValueError(f"not an event ({error} is missing): {line[:200]}") from error
        return cls(name, float(time_s), task, int(attempt), record)

    def line(self) -> str:
        """The JSON line that `parse` reads."""
        common = zip(COMMON, (self.name, self.time_s, self.task, self.attempt), strict=True)
        return json.dumps({**dict(common), **self.data}) + "\n"


class Tail:
    """Reads the lines that have been added to an event file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.partial = b""

    def read(self) -> list[Event]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self.offset += len(data)
        *complete, self.partial = (self.partial + data).split(b"\n")
        return [Event.parse(line.decode()) for line in complete if line]


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

    def of(self, name: str, task: str | None = None, attempt: int | None = None) -> list[Event]:
        """Events of one name in time order, of one task and incarnation where these are given."""
        return of(self.events, name, task, attempt)

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
        attempts = [a for t, a in self.logs if t == task]
        wanted = attempt if attempt is not None else max(attempts, default=0)
        path = self.logs.get((task, wanted))
        return path.read_text(errors="replace") if path and path.exists() else ""

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
        return backends.actual(self.log(task) for task in self.workers)

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
    """The history of a cluster from its directory of event files, less what is half a line."""
    files = sorted(directory.glob("*.jsonl"))
    return in_order(event for path in files for event in Tail(path).read())


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """One history from many files; the sort is stable, so a task's own order survives ties."""
    return tuple(sorted(events, key=lambda e: e.time_s))
