"""Tests that could not examine a program of a user, and what would let them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from reports.core.labels import property_of
from reports.core.table import Column, Row, Table
from reports.core.text import plural
from reports.rundir.frame import RunFrames

COLUMNS = (Column("tests", right=True), Column("of"), Column("to have them examined"))
NOTE = (
    "These tests are about the approach of the program but gave no verdict. They do not count as "
    "passed. run.json lists each test under not_examined."
)


def program(row: Mapping[str, Any]) -> str:
    """Return a program of run.json in one line: its approach with the reason, and its level."""
    level = f"examined at level {row['level']} ({row['level_name']})"
    return f"{row['name']}: {row['approach']}, {row['reason']}; {level}"


def table(run: RunFrames) -> Table:
    """Return one line for each program and remedy; no rows if everything was examined."""
    of_program = {row["name"]: program(row) for row in run.info.get("programs", ())}
    tests: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in run.info.get("not_examined", ()):
        tests[entry["trainer"], entry["reason"]].append(entry["test"])
    rows = []
    for (trainer, reason), same in tests.items():
        properties = ", ".join(sorted(set(map(property_of, same))))
        rows.append(Row(of_program.get(trainer) or trainer, (str(len(same)), properties, reason)))
    rows.sort(key=lambda row: row.group)
    return Table("Not examined", COLUMNS, tuple(rows), NOTE)


def brief(run: RunFrames) -> Table:
    """Return the lines with the number of tests and the remedy only."""
    whole = table(run)
    count = sum(int(row.cells[0]) for row in whole.rows)
    note = f"{plural(count, 'test')} without a verdict. Such tests do not count as passed."
    return Table(whole.title, whole.columns, whole.rows, note).with_columns([0, 2])
