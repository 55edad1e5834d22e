"""Badges: one JSON for each approach and minor version of TensorFlow, in shields.io's format.

The format is that of https://shields.io/badges/endpoint-badge; `badge.schema.json` has the part of
it that is used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.core import text
from reports.matrix import cells
from reports.matrix.cells import BROKEN, KNOWN_DEVIATION, NOT_RUN, UNSUPPORTED, WORKS, Cell, Matrix
from reports.matrix.columns import NO_KERAS, Column

SCHEMA = Path(__file__).resolve().parent / "badge.schema.json"
COLORS = {
    WORKS: "brightgreen",
    KNOWN_DEVIATION: "yellow",
    BROKEN: "red",
    UNSUPPORTED: "lightgrey",
    NOT_RUN: "inactive",
}


def badges(matrix: Matrix) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and content of each badge: `badges/APPROACH-VERSION.json`."""
    for approach in matrix.approaches:
        checks = matrix.of(approach=approach)
        for version, columns in matrix.by_minor.items():
            given = {column: cells.cell(checks, column) for column in columns}
            worst = Cell(tuple(result for own in given.values() for result in own.results)).state
            content = {
                "schemaVersion": 1,
                "label": f"{approach} on TensorFlow {version}",
                "message": _message(given),
                "color": COLORS[worst],
            }
            yield f"badges/{text.slug(f'{approach}-{version}')}.json", content


def _message(given: Mapping[Column, Cell]) -> str:
    """Return the state of the approach, with the Keras of each if they differ."""
    states = {column: _words(cell) for column, cell in given.items()}
    if len(set(states.values())) == 1:
        return next(iter(states.values()))
    return "; ".join(
        words if column.keras == NO_KERAS else f"{column.detail}: {words}"
        for column, words in states.items()
    )


def _words(cell: Cell) -> str:
    figures = cell.figures()
    return f"{cell.state.word} ({figures})" if figures else cell.state.word
