"""What a section of the report contains: facts, findings and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROBLEM, WARNING = "problem", "warning"  # a problem makes training fail, and the exit code 1
Pairs = tuple[tuple[str, str], ...]  # label, value


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or surprising; `hint` says what would be right."""

    level: str  # PROBLEM or WARNING
    text: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level, "text": self.text, "hint": self.hint}


@dataclass(frozen=True)
class Listing:
    """Entries of a text and its details under a title; `note` ends it."""

    title: str
    entries: Pairs
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One part of the report; `data` has what the JSON contains in addition to the rest."""

    title: str
    facts: Pairs = ()
    findings: tuple[Finding, ...] = ()
    grid_title: str = ""
    grid: Pairs = ()
    listings: tuple[Listing, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> int:
        """Return the number of findings that make training fail."""
        return sum(finding.level == PROBLEM for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "facts": dict(self.facts),
            "findings": [finding.to_dict() for finding in self.findings],
            **self.data,
        }
