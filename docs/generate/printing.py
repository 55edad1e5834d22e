"""Run commands of the project for their output."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Sequence

from reports import __main__ as reports_command

OUTPUT_COLUMNS = 84  # of the terminal that a printed output is made for


def printed(arguments: Sequence[str]) -> str:
    """Return what `python -m` prints with these arguments, run in this process."""
    if arguments[0] == "reports":
        main: Callable[[Sequence[str]], int] = reports_command.main
    else:
        from suite.campaigns import __main__ as campaigns_command

        main = campaigns_command.main
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(OUTPUT_COLUMNS)
    try:
        with contextlib.redirect_stdout(out):
            status = main(list(arguments[1:]))
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    if status == reports_command.BAD_INPUT:
        raise RuntimeError(f"python -m {' '.join(arguments)}: exit code {status}")
    return out.getvalue()
