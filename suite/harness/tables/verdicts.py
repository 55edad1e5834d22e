"""The six verdicts, and who earns which: decided from the exception's type and one table row.

Only what TensorFlow or the trainer did can be `failed`; what the harness or the machine did is
`harness_error`. `known_deviation` and `unsupported` come only from a row of expectations.toml, and
only when the message that really came is the one that the row foretells.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from reports.core import text
from suite.harness.core.errors import CheckFailed, TrainerFailed, Unsupported
from suite.harness.tables.expectations import KNOWN_DEVIATION, UNSUPPORTED, Row

PASSED = "passed"
FAILED = "failed"
UNEXPECTED_PASS = "unexpected_pass"
HARNESS_ERROR = "harness_error"

# From good to bad. A failure outweighs a harness that broke as well: it was found out all the same.
VERDICTS = (PASSED, UNSUPPORTED, KNOWN_DEVIATION, UNEXPECTED_PASS, HARNESS_ERROR, FAILED)

CALL = "call"
REASON_BYTES = 300  # of a message, that a reason repeats at most


class Judgement(NamedTuple):
    """A verdict, why in one line, and where to read about it."""

    verdict: str
    reason: str = ""
    url: str = ""


def badness(verdict: str) -> int:
    """For choosing the worse of two; 0 is `passed`."""
    return VERDICTS.index(verdict)


def decide(
    error: BaseException | None,
    row: Row | None = None,
    *,
    phase: str = CALL,
    message: str | None = None,
) -> Judgement:
    """The verdict of one phase (setup, call, teardown) of a test.

    `row` is the expectation for this test, trainer and these versions, if there is one; `message`
    is what it is compared with (default: the exception's own text).
    """
    if error is None:
        # Only the test itself can show that what was expected to break does not.
        if row is None or phase != CALL:
            return Judgement(PASSED)
        return Judgement(
            UNEXPECTED_PASS, f"passes, but was expected {row.status}: {row.reason}", row.url
        )
    said = str(error) if message is None else message
    if isinstance(error, Unsupported):
        return _unsupported(said, row)
    if isinstance(error, TrainerFailed | CheckFailed) or (phase == CALL and _is_assertion(error)):
        return _failed(said, row)
    return Judgement(HARNESS_ERROR, f"{type(error).__name__}: {first_line(said)}")


def _is_assertion(error: BaseException) -> bool:
    """A test's own assert; outside the test it is a fixture's, so the harness's."""
    return isinstance(error, AssertionError | pytest.fail.Exception)


def _failed(said: str, row: Row | None) -> Judgement:
    if row is None or row.status != KNOWN_DEVIATION:
        return Judgement(FAILED, first_line(said))
    return _confirmed(said, row)


def _unsupported(said: str, row: Row | None) -> Judgement:
    if row is None or row.status != UNSUPPORTED:
        return Judgement(
            FAILED, f"unsupported without a row in expectations.toml: {first_line(said)}"
        )
    return _confirmed(said, row)


def _confirmed(said: str, row: Row) -> Judgement:
    """The row's status, if what came is what it foretells; another failure hides behind no row."""
    if row.confirms(said):
        return Judgement(row.status, row.reason, row.url)
    foretold = f"{row.status} was expected with /{row.message}/"
    return Judgement(FAILED, f"{foretold}, but this came: {first_line(said)}", row.url)


def first_line(message: str) -> str:
    """The first line that says something, not too long for a table."""
    lines = [line.strip() for line in text.clean(message).splitlines() if line.strip()]
    return text.bounded(lines[0], REASON_BYTES) if lines else "no message"
