"""The support matrix in a terminal, and its columns as files to publish."""

from __future__ import annotations

from pathlib import Path

from reports.core import table as tables
from reports.core.table import Row, Table
from reports.matrix import cells
from reports.matrix.cells import STATES, Cell, Matrix
from reports.rundir import compact


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
