"""Make the support matrix: its table for a page, and its site below `matrix/`."""

from __future__ import annotations

from pathlib import Path

from reports.matrix import cells, claims, site
from reports.rundir import compact

from .evidence import demoted
from .markdown import fenced, raw_html
from .paths import EVIDENCE
from .printing import printed

PUBLISHED = EVIDENCE / "matrix"
SITE = "matrix"


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


def write_site(directory: Path) -> None:
    """Write the site into the built documentation, whose front page it links to."""
    if PUBLISHED.is_dir():
        matrix = cells.build([compact.load(PUBLISHED)])
        front_page = "../index.html"
        site.write(matrix, claims.load(None), directory / SITE, front_page)
