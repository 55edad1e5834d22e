"""Render the pages of a run directory."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from reports.rundir import frame
from reports.rundir.writer import write_file

if TYPE_CHECKING:
    from reports.sections.registry import Failures


def write_pages(run: frame.RunFrames) -> Failures:
    """Write report.md and report.html; return the parts that could not be rendered.

    Raise OSError, with the file's name, if a file could not be written.
    """
    # Matplotlib and Jinja take a second to import, and xdist's workers do not need them.
    from markupsafe import escape

    from reports.render import html, markdown
    from reports.sections.registry import Failures

    failures = Failures()
    for name, render in (("report.md", markdown.render), ("report.html", html.render)):
        attempt = functools.partial(render, run, failures)
        page = failures.attempt(name, attempt, lambda note: f"{escape(note)}\n")
        write_file(run.directory / name, page)
    return failures
