"""Event files as the reports read them: one JSON object a line, of tasks and of the harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.text import clean

EVENTS = "events"  # the directory in a run's; below it each cluster has one
COMMON = ("event", "time_s", "task", "attempt")


def of_file(path: Path) -> Iterator[Mapping[str, Any]]:
    """Its events; ValueError at a line that is none. A killed task may leave half of the last."""
    complete, _, _ = path.read_text("utf-8", "replace").rpartition("\n")
    for line in complete.splitlines():
        event = json.loads(line)
        if not isinstance(event, dict) or not set(COMMON) <= set(event):
            raise ValueError(f"{path} holds a line that is no event: {line[:80]}")
        yield clean(event)


def of_cluster(directory: Path) -> list[Mapping[str, Any]]:
    """All events of one cluster in the order of time; ValueError where a line is no event."""
    found = [event for path in sorted(directory.glob("*.jsonl")) for event in of_file(path)]
    return sorted(found, key=lambda event: float(event["time_s"]))
