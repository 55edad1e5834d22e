"""Check what a standalone reproduction of a finding observed (docs/findings/NAME.py)."""

from suite.harness.checks.assertions import check, only, require
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.history import Run

# Exit codes of a reproduction, which `git bisect run` understands.
PROMISE_HELD, DEVIATION_OBSERVED, NO_ANSWER = 0, 1, 125
OBSERVED, REASON = "observed: ", "cannot tell: "  # how its lines begin


@check
def promise_is_kept(run: Run) -> None:
    """Require that the reproduction observed no deviation.

    Raise Unsupported, with its reason, if it could not decide: a row of expectations.toml has to
    predict that, as for a version without the API. Raise HarnessError if it ended otherwise.
    """
    exited = only("exit", run.of("exited"))
    code, lines = exited["code"], run.log(exited.task).splitlines()
    observed, reason = (
        next((line for line in lines if line.startswith(start)), "") for start in (OBSERVED, REASON)
    )
    if code == NO_ANSWER and reason:
        raise Unsupported(reason.removeprefix(REASON))
    if code not in (PROMISE_HELD, DEVIATION_OBSERVED) or not observed:
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        raise HarnessError(f"the reproduction gave no answer (exit code {code}): {last}")
    require(code == PROMISE_HELD, observed)
