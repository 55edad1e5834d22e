"""Outcomes of scenarios that consist of more than one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from suite.harness.core.history import Run


@dataclass(frozen=True)
class Misconfigured:
    """A run on a directory, and digests of all files there before and after the run."""

    run: Run
    before: Mapping[str, str]
    after: Mapping[str, str]


@dataclass(frozen=True)
class Compared:
    """A run and its reference run."""

    run: Run
    reference: Run


@dataclass(frozen=True)
class Continued:
    """A run, and the run that continued from its checkpoint."""

    run: Run
    then: Run


@dataclass(frozen=True)
class Saved:
    """A run, and the formats in which its model was saved."""

    run: Run
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Moved:
    """A run, and two runs that restored its checkpoint: one of another approach, one reference.

    `reference` is one process without a strategy.
    """

    run: Run
    then: Run
    reference: Run


@dataclass(frozen=True)
class UnexpectedTask:
    """A run, and the name of the task that tried to join it."""

    run: Run
    unexpected: str


def runs_of(outcome: object) -> list[Run]:
    """Return all histories of a scenario's outcome."""
    if isinstance(outcome, Run):
        return [outcome]
    if isinstance(outcome, list):
        return outcome
    parts = [getattr(outcome, f.name) for f in fields(outcome)]  # type: ignore[arg-type]
    return [part for part in parts if isinstance(part, Run)]
