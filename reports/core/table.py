"""A table as every report gives it and every page shows it: strings, in groups, with a note.

The report modules decide what stands in the cells; terminal, Markdown and HTML only lay it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Column:
    """A heading, with its unit, and whether its cells are numbers."""

    name: str
    right: bool = False


@dataclass(frozen=True)
class Row:
    """One line; rows of one group stand under a heading of their own."""

    group: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """`note` explains the columns; it also says why a table has no rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    note: str = ""

    def groups(self) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        """Each group's heading with its lines."""
        for heading, rows in groupby(self.rows, key=lambda row: row.group):
            yield heading, [row.cells for row in rows]

    def without_empty_columns(self) -> Table:
        """The same table less the columns in which no row has anything."""
        if not self.rows:
            return self
        kept = [i for i in range(len(self.columns)) if any(row.cells[i] for row in self.rows)]
        return self.with_columns(kept)

    def with_columns(self, kept: Sequence[int]) -> Table:
        """The same table with these columns only."""
        return Table(
            self.title,
            tuple(self.columns[i] for i in kept),
            tuple(Row(row.group, tuple(row.cells[i] for i in kept)) for row in self.rows),
            self.note,
        )
