"""Verdicts of the same tests on two engines: they are equal, but for what an engine cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.compare.run_groups import Side
from reports.core.table import Column, Row, Table
from reports.core.text import one_line, plural
from reports.core.verdicts import UNSUPPORTED
from reports.rundir import frame
from reports.rundir.frame import BadInput

DIFFERS = "another verdict"
CANNOT = "unsupported on one engine"
REASON = 200  # characters of a reason in the table


@dataclass(frozen=True)
class Comparison:
    """The tests that both runs have: how many are equal, and a row for each other one."""

    table: Table
    equal: int
    apart: int  # tests that only one of the runs has

    @property
    def differing(self) -> int:
        return sum(row.group == DIFFERS for row in self.table.rows)

    def outcome(self) -> str:
        """Return the counts in one line."""
        unsupported = len(self.table.rows) - self.differing
        return (
            f"{plural(self.equal, 'test')} with the same verdict, {unsupported} {CANNOT}, "
            f"{self.differing} with {DIFFERS}, {self.apart} in one run only"
        )


def compare(base: Side, new: Side) -> Comparison:
    """Compare the verdicts of two runs, each of one engine.

    Raise BadInput if the engines are the same, the versions differ, or no test is in both runs.
    """
    names = engine_of(base), engine_of(new)
    if names[0] == names[1]:
        raise BadInput(f"both runs are of the engine {names[0]}: give a run of each of two engines")
    if base.versions != new.versions:
        raise BadInput(f"the runs have different versions: {base.versions}; {new.versions}")
    common = [key for key in base.tests if key in new.tests]
    if not common:
        raise BadInput("the runs have no test in common")
    rows = sorted(_rows(base, new, common), key=lambda row: row.group == CANNOT)
    columns = (Column("test"), *map(Column, names), Column("reason"))
    table = Table(f"Verdicts on the engines {names[0]} and {names[1]}", columns, tuple(rows))
    apart = len(base.tests) + len(new.tests) - 2 * len(common)
    return Comparison(table, len(common) - len(rows), apart)


def engine_of(side: Side) -> str:
    """Return the name of a run's engine; that of runs from before there was another is `local`."""
    return str((side.runs[0].info.get("engine") or {}).get("name", frame.LOCAL))


def _rows(base: Side, new: Side, common: list[str]) -> Iterator[Row]:
    for key in common:
        both = base.tests[key], new.tests[key]
        if both[0].verdicts == both[1].verdicts:
            continue
        group = CANNOT if any(each.verdicts == (UNSUPPORTED,) for each in both) else DIFFERS
        reason = both[1].reason or both[0].reason
        yield Row(group, (both[0].test, both[0].words, both[1].words, one_line(reason)[:REASON]))
