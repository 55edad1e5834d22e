"""Phases of each cluster of a run, read from its event files: what it waited for, and how long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reports.rundir import event_files

# Phases in their order: name -> what the cluster waits for in it.
PHASES: Mapping[str, str] = {
    "start": "until every task has started: interpreter and imports",
    "connect": "until every task has joined the cluster",
    "first step": "until every task that trains has made a step: tracing, first data",
    "training": "until the last step, or the first fault",
    "fault": "from the first fault to the last step: detection, restart, recovery",
    "end": "from the last step to the last exit: evaluation, export, deadlines of faults",
    "other": "of clusters without a step, such as small programs that reproduce a finding",
}
PROGRESS = ("step", "epoch", "executed", "reduced", "timed", "collective", "limit")
NUMBER = re.compile(r"^(?:[a-z]+-)?\d+-")  # before the scenario in a directory's name


@dataclass(frozen=True)
class Cluster:
    """One cluster. `spans`: (phase, begin, end) in seconds of the machine's monotonic clock."""

    scenario: str
    spans: Sequence[tuple[str, float, float]]

    @property
    def begin_s(self) -> float:
        return self.spans[0][1]

    @property
    def end_s(self) -> float:
        return self.spans[-1][2]

    def seconds(self) -> dict[str, float]:
        """Return the duration of each phase that the cluster had."""
        return {phase: end_s - begin_s for phase, begin_s, end_s in self.spans}


@cache
def of_run(directory: Path) -> tuple[Cluster, ...]:
    """Return the clusters of a run by their begin; none if its events are gone or damaged."""
    found = []
    for path in sorted((directory / event_files.EVENTS).glob("*/")):
        try:
            cluster = of_events(NUMBER.sub("", path.name), event_files.of_cluster(path))
        except (ValueError, KeyError, TypeError):
            continue
        found += [cluster] if cluster else []
    return tuple(sorted(found, key=lambda cluster: cluster.begin_s))


def of_events(scenario: str, events: Sequence[Mapping[str, Any]]) -> Cluster | None:
    """Return the phases of a cluster from its events in order of time; None without a task.

    A phase ends when the slowest task has passed it. A phase that the cluster did not reach, or
    whose end no task reports, is left out; its time belongs to the next one.
    """
    spawned = _first(events, ("spawned",))
    if not spawned:
        return None
    progress = [e["time_s"] for e in events if e["event"] in PROGRESS]
    faults = [e["time_s"] for e in events if e["event"] == "fault_started"]
    marks = {
        "start": max(_first(events, ("started",)).values(), default=None),
        "connect": max(_first(events, ("joined",)).values(), default=None),
        "first step": max(_first(events, PROGRESS).values(), default=None),
        "training": min([*faults[:1], *progress[-1:]], default=None),
        "fault": progress[-1] if faults and progress else None,
        "end" if progress else "other": max(e["time_s"] for e in events),
    }
    spans: list[tuple[str, float, float]] = []
    begin_s = min(spawned.values())
    for phase, end_s in marks.items():
        if end_s is not None and end_s > begin_s:
            spans.append((phase, begin_s, end_s))
            begin_s = end_s
    return Cluster(scenario, tuple(spans)) if spans else None


def _first(events: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, float]:
    """Return the time of the first of these events of each task, in its first incarnation."""
    wanted, found = set(names), {}
    for event in events:
        if event["event"] in wanted and not event["attempt"]:
            found.setdefault(event["task"], event["time_s"])
    return found


def rows_of(clusters: Sequence[Cluster]) -> list[list[Cluster]]:
    """Return the clusters in as few rows as run at once, without overlap within a row."""
    rows: list[list[Cluster]] = []
    for cluster in clusters:
        free = next((row for row in rows if row[-1].end_s <= cluster.begin_s), None)
        if free is None:
            rows.append([cluster])
        else:
            free.append(cluster)
    return rows


def busy_s(clusters: Sequence[Cluster]) -> float:
    """Return the seconds during which at least one of the clusters (by begin) existed."""
    total, until_s = 0.0, float("-inf")
    for cluster in clusters:
        total += max(0.0, cluster.end_s - max(until_s, cluster.begin_s))
        until_s = max(until_s, cluster.end_s)
    return total
