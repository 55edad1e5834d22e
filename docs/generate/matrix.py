"""Make the support matrix: its table for a page, and its site below `matrix/`."""

from __future__ import annotations

from pathlib import Path

from reference_trainers import TRAINERS
from reports.matrix import cells, claims, site
from reports.matrix.cells import Matrix
from reports.matrix.columns import Column
from reports.rundir import compact

from .evidence import demoted
from .markdown import fenced, raw_html
from .markdown import table as markdown_table
from .paths import EVIDENCE
from .printing import printed

PUBLISHED = EVIDENCE / "matrix"
SITE = "matrix"
# The test that shows that an approach trains to its end.
TRAINS = "::test_run_finishes_requested_steps["


def table() -> str:
    """Return the table of approaches by version, and a link to the site."""
    if not PUBLISHED.is_dir():
        return "*docs/evidence/matrix is not in this checkout.*\n"
    shown = demoted(printed(["reports", "matrix", "--format", "md", str(PUBLISHED)]))
    command = "$ python -m reports matrix docs/evidence/matrix"
    link = raw_html(f'<p><a href="../{SITE}/index.html">Open the support matrix</a></p>')
    return "\n".join([link, shown, fenced(command, "console")])


def support_table() -> str:
    """Return the README's table: the approaches by version, with a sign for each Keras."""
    matrix = published()
    versions: dict[str, list[Column]] = {}
    for column in matrix.columns:
        versions.setdefault(column.minor, []).append(column)
    rows = []
    for trainer in TRAINERS:
        checks = [c for c in matrix.of(approach=trainer.name) if TRAINS in c.test]
        signs = (_signs(checks, columns) for columns in versions.values())
        rows.append([f"`{trainer.name}`", *signs])
    return markdown_table(("approach", *versions), rows)


def _signs(checks: list[cells.Check], columns: list[Column]) -> str:
    """Return the sign of each column, or one if all are the same."""
    marks = [cells.cell(checks, column).state.mark for column in columns]
    return " ".join(marks if len(set(marks)) > 1 else marks[:1])


def published() -> Matrix:
    """Return the support matrix of the published columns."""
    return cells.build([compact.load(PUBLISHED)])


def write_site(directory: Path) -> None:
    """Write the site into the built documentation, whose front page it links to."""
    if PUBLISHED.is_dir():
        matrix = published()
        front_page = "../index.html"
        site.write(matrix, claims.load(None), directory / SITE, front_page)
