"""The support matrix as a static site: pages that open from disk, without network or JavaScript.

`pages` has their content, and the template `matrix.html.j2` lays it out.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from reports.matrix import badges, cells
from reports.matrix.cells import ABSENT, STALE, STATES, WORKS, Matrix
from reports.matrix.claims import Claims
from reports.matrix.columns import flavor_name
from reports.matrix.layout import Page, approach_path, claim_path, version_path
from reports.matrix.pages import TITLE, pages
from reports.render import html
from reports.rundir import compact
from reports.rundir.writer import write_file

MARKER = ".support-matrix"  # file of a directory that this module wrote, which it may replace
PARTS = ("approach", "claim", "version", "fault", "saved", "compare", "filter", "badges")


def write(matrix: Matrix, claims: Claims, directory: Path, documentation: str = "") -> list[Path]:
    """Write the site and return its files; `documentation` is the address of the project's pages.

    Pages of an earlier site in that directory are deleted. Raise OSError if a file cannot be
    written.
    """
    for part in PARTS if (directory / MARKER).is_file() else ():
        shutil.rmtree(directory / part, ignore_errors=True)
    for part in PARTS:
        (directory / part).mkdir(parents=True, exist_ok=True)
    files = {MARKER: "", "style.css": _style()}
    for page in pages(matrix, claims):
        files[page.path] = render(page, matrix, claims, documentation)
    for path, content in badges.badges(matrix):
        files[path] = json.dumps(content, indent=1) + "\n"
    for path, content in files.items():
        write_file(directory / path, content)
    return [directory / path for path in files]


def _style() -> str:
    return "".join(
        (html.TEMPLATES / name).read_text("utf-8") for name in ("style.css", "matrix.css")
    )


def render(page: Page, matrix: Matrix, claims: Claims, documentation: str = "") -> str:
    """Return a page as HTML."""
    root = "../" * page.path.count("/")
    content = {
        "page": page,
        "root": root,
        "columns": matrix.columns,
        "title": TITLE,
        "stale": STALE,
        "states": STATES,
        "flavors": [(flavor, flavor_name(flavor)) for flavor in matrix.flavors],
        "claims": claims,
        "documentation": documentation,
        "approach_path": approach_path,
        "claim_path": claim_path,
        "version_path": version_path,
        "reason_anchor": cells.reason_anchor,
        "works": WORKS,
        "absent": ABSENT,
        "portable": compact.portable,
        "with_faults": any(check.is_about_faults for check in matrix.checks),
        "with_saved_files": any(check.variant for check in matrix.loads),
    }
    return html.page("matrix.html.j2", content)
