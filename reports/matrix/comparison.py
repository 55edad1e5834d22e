"""What changes from one column of the support matrix to another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.matrix.cells import NOT_RUN, WORKS, Check, Result, State
from reports.matrix.columns import Column

STOPPED, STARTED, OTHERWISE, ONE_SIDED = (
    "Stopped working",
    "Works now",
    "Changed in another way",
    "Run with one of the two only",
)
KINDS = (STOPPED, STARTED, OTHERWISE, ONE_SIDED)


@dataclass(frozen=True)
class Change:
    """Checks of one approach that changed from and to the same state and reason."""

    kind: str
    approach: str
    before: Result
    after: Result
    checks: tuple[Check, ...]


def changes(checks: Iterable[Check], old: Column, new: Column) -> list[Change]:
    """Return what differs between two columns, by kind and approach."""
    groups: dict[tuple, list[tuple[Check, Result, Result]]] = {}
    for check in checks:
        before, after = check.result(old), check.result(new)
        kind = _kind(before, after)
        if kind:
            key = kind, check.approach, *_meaning(before), *_meaning(after)
            groups.setdefault(key, []).append((check, before, after))
    found = [
        Change(key[0], key[1], same[0][1], same[0][2], tuple(check for check, _, _ in same))
        for key, same in groups.items()
    ]
    return sorted(found, key=lambda c: (KINDS.index(c.kind), c.approach, -len(c.checks)))


def _kind(before: Result, after: Result) -> str:
    """Return the kind of a change; "" if nothing that a reader sees has changed."""
    states = before.state, after.state
    if NOT_RUN in states:
        return "" if states == (NOT_RUN, NOT_RUN) else ONE_SIDED
    if WORKS in states:
        return "" if states == (WORKS, WORKS) else STOPPED if states[0] is WORKS else STARTED
    return OTHERWISE if _meaning(before) != _meaning(after) else ""


def _meaning(result: Result) -> tuple[State, str, str]:
    return result.state, "" if result.state is WORKS else result.reason, result.url


def pairs(columns: Sequence[Column]) -> list[tuple[Column, Column]]:
    """Return each pair of columns, the older first."""
    return [(old, new) for i, old in enumerate(columns) for new in columns[i + 1 :]]
