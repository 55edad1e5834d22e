"""The support matrix in a terminal, and its columns as files to publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.core import table as tables
from reports.core.table import Row, Table
from reports.matrix import cells
from reports.matrix.cells import STATES, Cell, Check, Matrix
from reports.matrix.columns import Column, with_newest_keras
from reports.rundir import compact

# The test that shows that an approach trains to its end.
TRAINS = "::test_run_finishes_requested_steps["


def table(matrix: Matrix) -> Table:
    """Return approach by column; a cell has its sign, its word and the count of its results."""
    columns = (
        tables.Column("approach"),
        *(tables.Column(f"{each.release} {each.detail}") for each in matrix.columns),
    )
    rows = []
    for name in matrix.approaches:
        checks = matrix.of(approach=name)
        shown = (words(cells.cell(checks, column)) for column in matrix.columns)
        rows.append(Row("", (name, *shown)))
    note = "; ".join(f"{state.mark} {state.word}: {state.meaning}" for state in STATES)
    return Table("Support matrix", columns, tuple(rows), note)


def training(matrix: Matrix) -> Table:
    """Return whether each approach trains to its end, by version, with a sign for each Keras."""
    rows = []
    for name in matrix.approaches:
        checks = [check for check in matrix.of(approach=name) if TRAINS in check.test]
        signs = (_signs(checks, with_newest_keras(own)) for own in matrix.by_minor.values())
        rows.append(Row("", (name, *signs)))
    heads = (tables.Column("approach"), *map(tables.Column, matrix.by_minor))
    meanings = "; ".join(f"{state.mark} {state.word}" for state in STATES)
    note = f"{meanings}. Two signs: with tf_keras, and with Keras 3, each the newest that was run."
    return Table("What trains", heads, tuple(rows), note)


def _signs(checks: Sequence[Check], columns: Sequence[Column]) -> str:
    """Return the sign of each column, or one if all are the same."""
    marks = [cells.cell(checks, column).state.mark for column in columns]
    return " ".join(marks if len(set(marks)) > 1 else marks[:1])


def words(cell: Cell) -> str:
    """Return `≈ known deviation, 2 of 59`."""
    figures = cell.figures()
    return f"{cell.state.mark} {cell.state.word}" + (f", {figures}" if figures else "")


def publish(matrix: Matrix, directory: Path) -> list[Path]:
    """Write each column as a file of published verdicts; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for column, published in matrix.published.items():
        files.append(directory / f"{column.slug}.parquet")
        compact.write(files[-1], published)
    return files
