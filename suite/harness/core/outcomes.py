"""What a scenario comes to, where that is more than one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from suite.harness.core.history import Run


@dataclass(frozen=True)
class Misconfigured:
    """What came of a run on a directory, and digests of all files there before and after it."""

    run: Run
    before: Mapping[str, str]
    after: Mapping[str, str]


@dataclass(frozen=True)
class Compared:
    """A run and the one that it is held against."""

    run: Run
    reference: Run


@dataclass(frozen=True)
class Continued:
    """A run and the one that went on from what it had saved."""

    run: Run
    then: Run


@dataclass(frozen=True)
class Moved:
    """A run, one of another approach that went on from what it had saved, and a third from there.

    `reference` is one process without a strategy.
    """

    run: Run
    then: Run
    reference: Run


@dataclass(frozen=True)
class UnexpectedTask:
    """A run and the name of the task that tried to join it."""

    run: Run
    stranger: str


def runs_of(outcome: object) -> list[Run]:
    """All histories in what a scenario gave."""
    if isinstance(outcome, Run):
        return [outcome]
    if isinstance(outcome, list):
        return outcome
    parts = [getattr(outcome, f.name) for f in fields(outcome)]  # type: ignore[arg-type]
    return [part for part in parts if isinstance(part, Run)]
