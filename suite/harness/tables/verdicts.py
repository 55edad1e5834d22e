"""Judge a test: its verdict follows from the exception's type and one row of the table.

Only failures of TensorFlow or the trainer can be `failed`; failures of the harness or the machine
are `harness_error`. `known_deviation` and `unsupported` require a row of expectations.toml, and an
actual message that matches the row's.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from reports.core import text
from reports.core.verdicts import (
    FAILED,
    HARNESS_ERROR,
    KNOWN_DEVIATION,
    PASSED,
    UNEXPECTED_PASS,
    UNSUPPORTED,
)
from suite.harness.core.errors import CheckFailed, TrainerFailed, Unsupported
from suite.harness.tables.expectations import Row

CALL = "call"
MAX_REASON_BYTES = 300  # of a message in a reason


class Judgement(NamedTuple):
    """A verdict, its reason in one line, and a URL with details."""

    verdict: str
    reason: str = ""
    url: str = ""


def decide(
    error: BaseException | None,
    row: Row | None = None,
    *,
    phase: str = CALL,
    message: str | None = None,
) -> Judgement:
    """Return the verdict of one phase (setup, call, teardown) of a test.

    `row` is the expectation for this test, trainer and these versions, if there is one. It is
    compared with `message` (default: the exception's text).
    """
    if error is None:
        # Only the call phase can show that the expected failure did not happen.
        if row is None or row.may_pass or phase != CALL:
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
    """Return True for a failed assertion. In the call phase it is the test's own.

    In other phases it is a fixture's, and so a harness error.
    """
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
    """Return the row's status if its message matches, else `failed`.

    So a row for one failure cannot hide another.
    """
    if row.confirms(said):
        return Judgement(row.status, row.reason, row.url)
    expected = f"{row.status} was expected with /{row.message}/"
    return Judgement(FAILED, f"{expected}, but this came: {first_line(said)}", row.url)


def first_line(message: str) -> str:
    """Return the first non-empty line, short enough for a table."""
    lines = [line.strip() for line in text.clean(message).splitlines() if line.strip()]
    return text.bounded(lines[0], MAX_REASON_BYTES) if lines else "no message"
