"""Which approach keeps which property: the verdicts as a matrix, and the list of what did not pass.

A property is the test file's name, so that tests of one property stand in one column; the worst
verdict speaks for a cell, with its count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import pandas as pd

from reports.text import plural
from reports.verdicts import NAMES, VERDICTS, Verdict, worst

SEPARATOR = " · "
FOLDERS = ("conformance", "faults", "benchmarks")


@dataclass(frozen=True)
class Cell:
    """The verdicts of one approach on one property."""

    counts: Mapping[str, int]

    @property
    def worst(self) -> Verdict:
        return worst(self.counts)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def figures(self) -> str:
        """`3` when all are alike, else `1 of 3`."""
        count = self.counts[self.worst.name]
        return str(count) if count == self.total else f"{count} of {self.total}"

    def words(self) -> str:
        """Every verdict with its count, the worst first."""
        found = [row for row in VERDICTS if self.counts.get(row.name)]
        return ", ".join(row.counted(self.counts[row.name]) for row in found)


@dataclass(frozen=True)
class Matrix:
    """Rows and columns by name; a pair that no test covers has no cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def cell(self, row: str, column: str) -> Cell | None:
        return self.cells.get((row, column))


@dataclass(frozen=True)
class Finding:
    """Tests of one approach that did not pass, with one verdict for one reason."""

    verdict: Verdict
    approach: str
    reason: str
    url: str
    tests: tuple[str, ...]
    reproduce: tuple[str, ...]

    def properties(self) -> str:
        """`checkpoint (2), export`: where the tests belong."""
        counts = Counter(property_of(test) for test in self.tests)
        return ", ".join(f"{name} ({n})" if n > 1 else name for name, n in counts.items())

    def heading(self) -> str:
        """`known deviation, 2 tests: keras_multi_worker_mirrored · keras 3.15.1`."""
        return f"{self.verdict.words}, {plural(len(self.tests), 'test')}: {self.approach}"


def approach(trainer: str, keras: str) -> str:
    """A trainer and, where it makes a difference, the Keras flavour."""
    name = trainer or "no trainer"
    return name if keras in ("", "none") else name + SEPARATOR + keras


def property_of(test: str) -> str:
    """The property that a test id belongs to: its file's name, in words."""
    stem = PurePosixPath(test.split("::")[0]).stem
    return stem.removeprefix("test_").replace("_", " ") or test


def short_name(test: str) -> str:
    """A test id without its file."""
    return test.split("::", 1)[-1]


def _folder(test: str) -> tuple[int, str]:
    folder = PurePosixPath(test.split("::")[0]).parent.name
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS), folder


def matrix(verdicts: pd.DataFrame) -> Matrix:
    """Approach x property."""
    order: dict[str, tuple] = {}
    entries = []
    for test, trainer, keras, verdict in _values(verdicts, "test", "trainer", "keras", "verdict"):
        name = property_of(test)
        order[name] = min(order.get(name, (len(FOLDERS) + 1,)), (*_folder(test), name))
        entries.append((approach(trainer, keras), name, verdict))
    return _matrix(entries, sorted(order, key=order.__getitem__))


def claims(verdicts: pd.DataFrame) -> Matrix:
    """Claim x approach; a test counts for each claim that it names."""
    entries = [
        (claim, approach(trainer, keras), verdict)
        for trainer, keras, verdict, named in _values(
            verdicts, "trainer", "keras", "verdict", "claims"
        )
        for claim in (() if named is None else named)
    ]
    return _matrix(entries, sorted({column for _, column, _ in entries}))


def _matrix(entries: Iterable[tuple[str, str, str]], columns: list[str]) -> Matrix:
    found: dict[tuple[str, str], Counter] = {}
    for row, column, verdict in entries:
        found.setdefault((row, column), Counter())[verdict] += 1
    rows = sorted({row for row, _ in found})
    return Matrix(tuple(rows), tuple(columns), {key: Cell(value) for key, value in found.items()})


def findings(verdicts: pd.DataFrame) -> list[Finding]:
    """Everything that did not pass, the worst first; equal reasons of one approach are one entry.

    A red verdict (failed, harness_error, unexpected_pass) is never merged: each has its own story.
    """
    found: dict[tuple, list[tuple[str, str]]] = {}
    names = ("verdict", "trainer", "keras", "reason", "url", "test", "reproduce")
    red = {row.name for row in VERDICTS if row.red}
    for verdict, trainer, keras, reason, url, test, reproduce in _values(verdicts, *names):
        if verdict != "passed":
            alone = len(found) if verdict in red else -1
            key = (verdict, approach(trainer, keras), reason, url, alone)
            found.setdefault(key, []).append((test, reproduce))
    listed = [
        Finding(
            next(row for row in VERDICTS if row.name == verdict),
            who,
            reason or "no reason was recorded",
            url,
            tuple(test for test, _ in tests),
            tuple(command for _, command in tests if command),
        )
        for (verdict, who, reason, url, _), tests in found.items()
    ]
    return sorted(listed, key=lambda f: (NAMES.index(f.verdict.name), f.approach, f.tests))


def _values(frame: pd.DataFrame, *columns: str) -> Iterable[tuple]:
    return zip(*(frame[column] for column in columns), strict=True)
