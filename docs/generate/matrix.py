"""Make the support matrix: its table for a page, and its site below `matrix/`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from reports.core.labels import REPRODUCTION_TEST
from reports.matrix import cells, claims, comparison, site
from reports.matrix.cells import WORKS, Matrix
from reports.matrix.columns import Column, with_newest_keras
from reports.rundir import compact

from .evidence import demoted
from .markdown import cell, fenced, raw_html
from .markdown import table as markdown_table
from .paths import EVIDENCE
from .printing import printed

PUBLISHED = EVIDENCE / "matrix"
SITE = "matrix"
KERAS_3 = "keras3"
CHANGES = (comparison.STOPPED, comparison.STARTED, comparison.OTHERWISE)


@cache
def published() -> Matrix:
    """Return the support matrix of the published columns."""
    return cells.build([compact.load(PUBLISHED)])


def table() -> str:
    """Return the table of approaches by version, and a link to the site."""
    if not PUBLISHED.is_dir():
        return "*docs/evidence/matrix is not in this checkout.*\n"
    shown = demoted(printed(["reports", "matrix", "--format", "md", str(PUBLISHED)]))
    command = "$ python -m reports matrix docs/evidence/matrix"
    link = raw_html(f'<p><a href="../{SITE}/index.html">Open the support matrix</a></p>')
    return "\n".join([link, shown, fenced(command, "console")])


def training() -> str:
    """Return the README's table: which approach trains on which version."""
    return printed(["reports", "matrix", "--brief", "--format", "md", str(PUBLISHED)])


def changes() -> str:
    """Return what differs between neighboring versions, and between one Keras and the next."""
    matrix = published()
    parts = []
    for old, new in neighbors(matrix):
        counts: Counter[tuple[str, ...]] = Counter()
        for change in comparison.changes(matrix.checks, old, new):
            if change.kind in CHANGES:
                counts[_row(change)] += len(change.checks)
        rows = [[row[0], str(count), *row[1:]] for row, count in counts.items()]
        parts.append(f"## From {old.short} to {new.short}\n")
        head = ("approach", "checks", "result", "reason")
        parts.append(markdown_table(head, rows) if rows else "Nothing differs.\n")
    return "\n".join(parts)


def neighbors(matrix: Matrix) -> Iterator[tuple[Column, Column]]:
    """Yield the pairs of neighbors with Keras 2 or tf_keras, those with Keras 3, and one of both.

    Versions are compared with their newest Keras, which is then compared with the older ones. A
    column with fewer than half of the checks is left out.
    """
    ran = {column: sum(column in c.results for c in matrix.checks) for column in matrix.columns}
    whole = [column for column in matrix.columns if 2 * ran[column] >= len(matrix.checks)]
    older = [column for column in whole if column.flavor != KERAS_3]
    keras_3 = [column for column in whole if column.flavor == KERAS_3]
    newest = with_newest_keras(keras_3)
    yield from itertools.pairwise(older)
    yield older[-1], newest[-1]
    yield from itertools.pairwise(newest)
    for old, new in itertools.pairwise(keras_3):
        if old.tensorflow == new.tensorflow:
            yield old, new


def _row(change: comparison.Change) -> tuple[str, ...]:
    """Return approach, results and reason; a reproduction is of no approach."""
    shown = change.before if change.after.state is WORKS else change.after
    reason = f"{cell(shown.reason)} ([thread]({shown.url}))" if shown.url else cell(shown.reason)
    is_finding = all(REPRODUCTION_TEST in check.test for check in change.checks)
    approach = "(reproduction of a finding)" if is_finding else change.approach
    return approach, f"{change.before.state.word} → {change.after.state.word}", reason


def write_site(directory: Path) -> None:
    """Write the site into the built documentation, whose front page it links to."""
    if PUBLISHED.is_dir():
        matrix = published()
        front_page = "../index.html"
        site.write(matrix, claims.load(None), directory / SITE, front_page)
