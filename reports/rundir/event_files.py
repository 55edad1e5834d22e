"""Reader of event files: one JSON object per line, written by tasks and by the harness."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.core.text import clean
from reports.rundir import renamed

EVENTS = "events"  # subdirectory of a run directory, with a directory for each cluster
COMMON: Mapping[str, tuple[type, ...]] = {
    "event": (str,),
    "time_s": (int, float),
    "task": (str,),
    "attempt": (int,),
}
MAX_TIME_S = 1e12  # a clock reaches this in thirty thousand years
MAX_NESTING = 20  # levels of nested lists and objects
HUGE = re.compile(r"\d{300}")  # an integer that may exceed a float


def parse(line: str) -> dict[str, Any]:
    """Return the event of one JSON line; raise ValueError, with one line, if it is not an event."""
    nested = line.count("[") + line.count("{") > MAX_NESTING
    if HUGE.search(line):
        raise ValueError("no event: it holds a number with 300 digits or more")
    try:
        event = json.loads(line)
    except RecursionError as error:
        raise ValueError(f"no event: it is nested deeper than {MAX_NESTING}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"no event: not JSON ({error.msg}, character {error.pos})") from error
    if not isinstance(event, dict):
        raise ValueError(f"no event: a JSON {type(event).__name__}, not an object")
    if nested and _depth(event) > MAX_NESTING:
        raise ValueError(f"no event: it is nested deeper than {MAX_NESTING}")
    for key, kinds in COMMON.items():
        if key not in event:
            raise ValueError(f"no event: it has no {key}")
        must_be(event, key, kinds)
    if not abs(event["time_s"]) < MAX_TIME_S:
        raise ValueError(f"no event: time_s is {event['time_s']}, no time of a clock")
    return event


def must_be(event: Mapping[str, Any], key: str, kinds: tuple[type, ...]) -> None:
    """Raise ValueError unless the field is of one of the types; a boolean is no number."""
    value = event[key]
    if not isinstance(value, kinds) or isinstance(value, bool):
        type_name = {str: "text", dict: "an object"}.get(kinds[0], "a number")
        raise ValueError(f"no event: {key} is {reprlib.repr(value)}, not {type_name}")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [x for v in inner for x in v if isinstance(x, (dict, list))]
    return depth


def of_file(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a file; raise ValueError at a line that is not an event.

    An incomplete last line is ignored, since a killed task may leave one.
    """
    complete, _, _ = path.read_text("utf-8", "replace").rpartition("\n")
    for number, line in enumerate(complete.split("\n"), start=1):
        if line:
            try:
                yield clean(parse(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error


def of_cluster(directory: Path) -> list[Mapping[str, Any]]:
    """Return all events of one cluster in order of time; raise ValueError for an invalid line."""
    events = [event for path in sorted(directory.glob("*.jsonl")) for event in of_file(path)]
    events = [
        {**event, "fault": renamed.fault(str(event["fault"]))} if "fault" in event else event
        for event in events
    ]
    return sorted(events, key=lambda event: float(event["time_s"]))
