"""A table of a report: strings in groups of rows, with a note.

The report modules produce the cells; terminal, Markdown and HTML only lay them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Column:
    """A heading with its unit; `right`: its cells are numbers."""

    name: str
    right: bool = False


@dataclass(frozen=True)
class Row:
    """One line; consecutive rows of one group share a heading."""

    group: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of a report; `note` explains the columns, or why there are no rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    note: str = ""

    def groups(self) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        """Yield each group's heading with its lines."""
        for heading, rows in groupby(self.rows, key=lambda row: row.group):
            yield heading, [row.cells for row in rows]

    def without_empty_columns(self) -> Table:
        """Return the table without the columns that are empty in all rows."""
        if not self.rows:
            return self
        indices = [i for i in range(len(self.columns)) if any(row.cells[i] for row in self.rows)]
        return self.with_columns(indices)

    def with_columns(self, indices: Sequence[int]) -> Table:
        """Return the table with these columns only."""
        return Table(
            self.title,
            tuple(self.columns[i] for i in indices),
            tuple(Row(row.group, tuple(row.cells[i] for i in indices)) for row in self.rows),
            self.note,
        )
