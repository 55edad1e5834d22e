"""A page of the support matrix as data: sections of tables, reasons, changes and links.

The template `matrix.html.j2` lays it out. Addresses within the site are relative to its root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from reports.core import text
from reports.matrix import cells
from reports.matrix.cells import Cell, Check, Reason
from reports.matrix.columns import Column
from reports.matrix.comparison import Change

NO_NOTES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Line:
    """A row of a grid: its name with an address, and a cell with its address for each column."""

    name: str
    href: str
    cells: tuple[tuple[Cell, str], ...]
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of cells; `corner` is the heading of its first column."""

    caption: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    main: bool = False  # True for the table that the filters of the index act on


@dataclass(frozen=True)
class Section:
    """A heading with what follows it; empty parts are left out."""

    title: str
    anchor: str
    note: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    grid: Grid | None = None
    checks: tuple[Check, ...] = ()
    columns: tuple[Column, ...] = ()  # of the checks
    by_approach: bool = False  # True if the rows of the checks name their approach
    reasons: tuple[Reason, ...] = ()
    changes: tuple[Change, ...] = ()
    level: int = 2


@dataclass(frozen=True)
class Page:
    """One page: its path in the site, and its content."""

    path: str
    title: str
    lead: str
    sections: tuple[Section, ...]
    quote: str = ""
    facts: tuple[tuple[str, str], ...] = ()


def approach_path(approach: str) -> str:
    return f"approach/{text.slug(approach)}.html"


def claim_path(claim: str) -> str:
    return f"claim/{text.slug(claim)}.html"


def version_path(column: Column) -> str:
    return f"version/{column.slug}.html"


def fault_path(fault: str) -> str:
    return f"fault/{text.slug(fault)}.html"


def compare_path(old: Column, new: Column) -> str:
    return f"compare/{text.slug(f'{old.slug}-to-{new.slug}')}.html"


def grid_of(
    caption: str,
    corner: str,
    columns: Sequence[Column],
    rows: Iterable[tuple[str, str, Sequence[Check]]],
    *,
    main: bool = False,
    to_version: bool = False,
    notes: Mapping[str, str] = NO_NOTES,
    cell: Callable[[Iterable[Check], Column], Cell] = cells.cell,
) -> Grid:
    """Return a grid; its rows are name, address and checks, and its cells lead to the address.

    `to_version`: cells lead to the approach's part of the version's page instead. `notes`: a
    sentence below the names of rows. `cell` returns the cell of a row's checks in a column.
    """
    lines = []
    for name, href, checks in rows:
        given = []
        for column in columns:
            target = f"{version_path(column)}#{text.slug(name)}" if to_version else href
            given.append((cell(checks, column), target))
        lines.append(Line(name, href, tuple(given), notes.get(name, "")))
    return Grid(caption, corner, tuple(columns), tuple(lines), main)
