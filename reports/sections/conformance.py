"""Conformance: verdicts by approach and property, and the list of tests that did not pass.

A property is the name of the test file, so tests of one property share a column. A cell shows its
worst verdict with the count of that verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import pandas as pd

from reports.core.labels import approach, property_of
from reports.core.text import plural
from reports.core.verdicts import BY_NAME, NAMES, VERDICTS, Verdict, worst

DURATIONS = (
    "time: setup and call of the test. The first test of a scenario includes the scenario. "
    "Scenarios may run concurrently, so the sum may exceed the duration of the run."
)
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
        """Return `3` if all verdicts are equal, else `1 of 3`."""
        count = self.counts[self.worst.name]
        return str(count) if count == self.total else f"{count} of {self.total}"

    def words(self) -> str:
        """Return every verdict with its count, the worst first."""
        present = [row for row in VERDICTS if self.counts.get(row.name)]
        return ", ".join(row.counted(self.counts[row.name]) for row in present)


@dataclass(frozen=True)
class Matrix:
    """Cells by row and column name; a pair that no test covers has no cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def cell(self, row: str, column: str) -> Cell | None:
        return self.cells.get((row, column))


@dataclass(frozen=True)
class Finding:
    """Tests of all approaches that did not pass with the same verdict, reason and link."""

    verdict: Verdict
    reason: str
    url: str
    by_approach: Mapping[str, tuple[str, ...]]  # the tests of each
    reproduce: tuple[str, ...]

    @property
    def approaches(self) -> tuple[str, ...]:
        return tuple(self.by_approach)

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(test for tests in self.by_approach.values() for test in tests)

    def properties(self, approach: str) -> str:
        """Return the properties of that approach's tests: `checkpoint (2), export`."""
        counts = Counter(property_of(test) for test in self.by_approach[approach])
        return ", ".join(f"{name} ({n})" if n > 1 else name for name, n in counts.items())

    def heading(self) -> str:
        """Return `known deviation, 2 tests: keras_multi_worker_mirrored · keras 3.15.1`."""
        text = f"{self.verdict.words}, {plural(len(self.tests), 'test')}"
        if len(self.by_approach) > 1:
            return f"{text} of {len(self.by_approach)} approaches"
        return f"{text}: {self.approaches[0]}"


def folder(test: str) -> tuple[int, str]:
    """Return the folder of a test, with its place in the order of the folders."""
    name = PurePosixPath(test.split("::")[0]).parent.name
    return FOLDERS.index(name) if name in FOLDERS else len(FOLDERS), name


def matrix(verdicts: pd.DataFrame) -> Matrix:
    """Return the matrix of approach by property."""
    order: dict[str, tuple] = {}
    entries = []
    for test, trainer, keras, verdict in _values(verdicts, "test", "trainer", "keras", "verdict"):
        name = property_of(test)
        order[name] = min(order.get(name, (len(FOLDERS) + 1,)), (*folder(test), name))
        entries.append((approach(trainer, keras), name, verdict))
    return _matrix(entries, sorted(order, key=order.__getitem__))


def by_folder(verdicts: pd.DataFrame) -> dict[str, Matrix]:
    """Return one matrix per test folder; a single matrix would have too many columns for a page."""
    folders = [folder(test) for test in verdicts["test"]]
    return {
        own[1]: matrix(verdicts.loc[[folder == own for folder in folders]])
        for own in sorted(set(folders))
    }


def claims(verdicts: pd.DataFrame) -> Matrix:
    """Return the matrix of claim by approach; a test counts for each claim that it names."""
    entries = [
        (claim, approach(trainer, keras), verdict)
        for trainer, keras, verdict, ids in _values(
            verdicts, "trainer", "keras", "verdict", "claims"
        )
        for claim in (() if ids is None else ids)
    ]
    return _matrix(entries, sorted({column for _, column, _ in entries}))


def _matrix(entries: Iterable[tuple[str, str, str]], columns: list[str]) -> Matrix:
    counts: dict[tuple[str, str], Counter] = {}
    for row, column, verdict in entries:
        counts.setdefault((row, column), Counter())[verdict] += 1
    rows = sorted({row for row, _ in counts})
    return Matrix(tuple(rows), tuple(columns), {key: Cell(value) for key, value in counts.items()})


def findings(verdicts: pd.DataFrame) -> list[Finding]:
    """Group the tests that did not pass by verdict, reason and link, the worst first.

    A red verdict (failed, harness_error, unexpected_pass) without a reason is a separate entry.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[str, str, str]]] = {}
    names = ("verdict", "trainer", "keras", "reason", "url", "test", "reproduce")
    for verdict, trainer, keras, reason, url, test, reproduce in _values(verdicts, *names):
        if verdict != "passed":
            alone = test if BY_NAME[verdict].red and not reason else ""
            key = (verdict, reason, url, alone)
            groups.setdefault(key, []).append((approach(trainer, keras), test, reproduce))
    all_findings = [
        _finding(verdict, reason, url, sorted(tests))
        for (verdict, reason, url, _), tests in groups.items()
    ]
    return sorted(all_findings, key=lambda f: (NAMES.index(f.verdict.name), f.approaches, f.tests))


def _finding(verdict: str, reason: str, url: str, tests: Sequence[tuple[str, str, str]]) -> Finding:
    by_approach: dict[str, tuple[str, ...]] = {}
    for name, test, _ in tests:
        by_approach[name] = (*by_approach.get(name, ()), test)
    commands = tuple(command for _, _, command in tests if command)
    text = reason or "no reason was recorded"
    return Finding(BY_NAME[verdict], text, url, by_approach, commands)


def _values(frame: pd.DataFrame, *columns: str) -> Iterable[tuple]:
    return zip(*(frame[column] for column in columns), strict=True)
