"""The six verdicts: name, order of severity, marks, color and meaning.

The harness and every report take them from this table, so the six stay distinct everywhere. They
are distinguished by mark as well as by color.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PASSED = "passed"
UNSUPPORTED = "unsupported"
KNOWN_DEVIATION = "known_deviation"
UNEXPECTED_PASS = "unexpected_pass"
HARNESS_ERROR = "harness_error"
FAILED = "failed"


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


# From the worst to the best: the first one present represents a group of tests. A failure outweighs
# an additional harness error, since its finding holds anyway.
VERDICTS = (
    Verdict(FAILED, "✗", "F", "bold red", True, "TensorFlow or the trainer broke the claim"),
    Verdict(HARNESS_ERROR, "!", "!", "bold magenta", True, "the harness or the machine failed"),
    Verdict(UNEXPECTED_PASS, "↑", "^", "bold yellow", True, "an expected deviation did not occur"),
    Verdict(KNOWN_DEVIATION, "≈", "~", "yellow", False, "deviates as the cited page describes"),
    Verdict(UNSUPPORTED, "○", "o", "cyan", False, "this setup cannot do it, and reported so"),
    Verdict(PASSED, "✓", "+", "green", False, "the claim held"),
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
