"""A page of the support matrix as data: sections of tables, reasons, changes and links.

The template `matrix.html.j2` lays it out. Addresses within the site are relative to its root.
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.core import text
from reports.matrix.cells import Cell, Check, Reason
from reports.matrix.columns import Column
from reports.matrix.comparison import Change


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
