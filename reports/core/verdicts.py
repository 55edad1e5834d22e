"""The six verdicts: meaning, marks, colors and order of severity.

Every report takes names, marks, colors and order from this table, so the six stay distinct in all
reports. They are distinguished by mark as well as by color.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One of the six verdicts; `mark` needs Unicode, `ascii_mark` does not."""

    name: str
    mark: str
    ascii_mark: str
    color: str  # in a terminal
    red: bool  # True if one such verdict makes the run fail
    meaning: str

    @property
    def words(self) -> str:
        """Return the name in words."""
        return self.name.replace("_", " ")

    def counted(self, count: int) -> str:
        """Return `1 known deviation`, `2 known deviations`, `2 passed`."""
        plural = {"n": "s", "r": "s", "s": "es"}.get(self.name[-1], "")  # the nouns among them
        return f"{count} {self.words}{plural if count != 1 else ''}"


# From the worst to the best: the first one present represents a group of tests.
VERDICTS = (
    Verdict("failed", "✗", "F", "bold red", True, "TensorFlow or the trainer broke the claim"),
    Verdict(
        "harness_error", "!", "!", "bold magenta", True, "the harness or the machine went wrong"
    ),
    Verdict("unexpected_pass", "↑", "^", "bold yellow", True, "a known deviation is one no longer"),
    Verdict("known_deviation", "≈", "~", "yellow", False, "deviates as a cited thread says"),
    Verdict("unsupported", "○", "o", "cyan", False, "this set-up cannot do it, and said so"),
    Verdict("passed", "✓", "+", "green", False, "the claim held"),
)
BY_NAME: Mapping[str, Verdict] = {row.name: row for row in VERDICTS}
NAMES = tuple(row.name for row in VERDICTS)


def count(names: Iterable[str]) -> dict[str, int]:
    """Return the count of each of the six verdicts, the best first as in run.json."""
    listed = list(names)
    return {row.name: listed.count(row.name) for row in reversed(VERDICTS)}


def worst(names: Iterable[str]) -> Verdict:
    """Return the worst of these verdicts; raise ValueError if there is none."""
    present = set(names)
    for row in VERDICTS:
        if row.name in present:
            return row
    raise ValueError("no verdict among " + (", ".join(sorted(present)) or "nothing"))


def is_red(counts: Mapping[str, int]) -> bool:
    """Return True if these counts make a run fail."""
    return any(counts.get(row.name, 0) for row in VERDICTS if row.red)
