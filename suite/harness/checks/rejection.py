"""Check user mistakes: one line of error, the exit code for it, and no loss of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.harness.checks.assertions import check, equal, require, some
from suite.harness.core.history import Run

if TYPE_CHECKING:
    from suite.harness.core.outcomes import Misconfigured

BAD_INPUT = 2


@check
def refused_in_one_line(run: Run) -> None:
    """Require that every task exits with 2 and one line with the reason, without a traceback."""
    names = (f"{run.trainer.name}: ", f"{run.trainer.name}.py: ")
    for task in some("task", run.tasks):
        exited = some(f"end of {task}", run.of("exited", task))[-1]
        equal(f"exit code of {task}", exited["code"], BAD_INPUT)
        log = run.log(task)
        said = [line for line in log.splitlines() if line.startswith(names)]
        equal(f"number of lines in which {task} says why", len(said), 1)
        require("Traceback" not in log, f"{task} explains {said[0]!r} with a traceback")


@check
def nothing_overwritten(misconfigured: Misconfigured) -> None:
    """Require that all files of the directory remain unchanged."""
    some("file", misconfigured.before)
    changed = [k for k, v in misconfigured.before.items() if misconfigured.after.get(k) != v]
    require(not changed, f"files that were changed or removed: {changed}")
