"""Check what a standalone reproduction of a finding observed (docs/findings/NAME.py)."""

from suite.harness.checks.assertions import check, only, require
from suite.harness.core.errors import HarnessError
from suite.harness.core.history import Run

# Exit codes of a reproduction, which `git bisect run` understands.
PROMISE_HELD, DEVIATION_OBSERVED, NO_ANSWER = 0, 1, 125
OBSERVED = "observed: "
NOT_APPLICABLE = "not applicable: "  # begins the only line of a reproduction on other versions


@check
def promise_is_kept(run: Run) -> None:
    """Require that the reproduction observed no deviation.

    A version to which the finding does not apply counts as no deviation. Raise HarnessError if the
    reproduction ended without an answer.
    """
    exited = only("exit", run.of("exited"))
    code, lines = exited["code"], run.log(exited.task).splitlines()
    if code == NO_ANSWER and any(line.startswith(NOT_APPLICABLE) for line in lines):
        return
    observed = next((line for line in lines if line.startswith(OBSERVED)), "")
    if code not in (PROMISE_HELD, DEVIATION_OBSERVED) or not observed:
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        raise HarnessError(f"the reproduction gave no answer (exit code {code}): {last}")
    require(code == PROMISE_HELD, observed)
