"""Tests of suite.harness.tables.verdicts: each way in which a test can end has one verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.core.verdicts import NAMES, is_red
from suite.harness.core.errors import (
    BadInput,
    CheckFailed,
    DeadlineExceeded,
    HarnessError,
    TrainerFailed,
    Unsupported,
)
from suite.harness.pytest_plugin.run_record import Recorder
from suite.harness.tables.expectations import Row
from suite.harness.tables.verdicts import decide

URL = "https://example.org/thread"
DEVIATION = Row("*", "*", "known_deviation", "Known since long.", "of type PerReplica", URL)
NOT_HERE = Row("*", "*", "unsupported", "Needs a device.", "no GPU", URL)

BLAMED_ON_THE_TRAINER = [
    CheckFailed("a != b"),
    TrainerFailed("worker/0 ended with 1"),
    DeadlineExceeded("worker/1 gave no step"),
    AssertionError("1 == 2"),
    pytest.fail.Exception("DID NOT RAISE"),
]
BLAMED_ON_THE_HARNESS = [
    HarnessError("the zygote is gone"),
    BadInput("no such file"),
    KeyError("loss"),
    TimeoutError("waited"),
    OSError(28, "No space left on device"),
    pytest.skip.Exception("no reason"),
]


def test_what_ends_well_is_passed():
    assert decide(None) == ("passed", "", "")


@pytest.mark.parametrize("error", BLAMED_ON_THE_TRAINER, ids=lambda e: type(e).__name__)
def test_what_the_trainer_did_is_failed(error: BaseException):
    assert decide(error) == ("failed", str(error), "")


@pytest.mark.parametrize("error", BLAMED_ON_THE_HARNESS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    "row", [None, DEVIATION, NOT_HERE], ids=["no-row", "deviation", "not-here"]
)
def test_what_the_harness_did_is_never_blamed_on_the_trainer(error: BaseException, row: Row | None):
    verdict = decide(error, row)
    assert verdict.verdict == "harness_error"
    assert verdict.reason.startswith(type(error).__name__)


@pytest.mark.parametrize("error", BLAMED_ON_THE_TRAINER[:3], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_a_trainer_that_fails_in_a_fixture_is_failed_too(error: Exception, phase: str):
    assert decide(error, phase=phase).verdict == "failed"


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_an_assertion_in_a_fixture_is_the_harness_s(phase: str):
    assert decide(AssertionError("x"), phase=phase).verdict == "harness_error"


def test_a_known_deviation_is_one_when_its_own_message_came():
    error = TrainerFailed("ValueError: of type PerReplica")
    assert decide(error, DEVIATION) == ("known_deviation", "Known since long.", URL)


def test_another_failure_does_not_hide_behind_a_known_deviation():
    verdict = decide(TrainerFailed("Segmentation fault"), DEVIATION)
    assert verdict.verdict == "failed"
    assert verdict.reason == (
        "known_deviation was expected with /of type PerReplica/, but this came: Segmentation fault"
    )


def test_a_failure_where_unsupported_was_expected_is_a_failure():
    assert decide(CheckFailed("no GPU"), NOT_HERE).verdict == "failed"


def test_unsupported_needs_a_row():
    verdict = decide(Unsupported("no GPU"))
    assert verdict.verdict == "failed"
    assert verdict.reason == "unsupported without a row in expectations.toml: no GPU"
    assert decide(Unsupported("of type PerReplica"), DEVIATION).verdict == "failed"


def test_unsupported_is_confirmed_by_its_reason():
    assert decide(Unsupported("no GPU here"), NOT_HERE) == ("unsupported", "Needs a device.", URL)
    assert decide(Unsupported("no Estimator"), NOT_HERE).verdict == "failed"


@pytest.mark.parametrize("row", [DEVIATION, NOT_HERE], ids=["deviation", "not-here"])
def test_a_test_that_passes_in_spite_of_its_row_is_unexpected(row: Row):
    verdict = decide(None, row)
    assert verdict.verdict == "unexpected_pass"
    assert row.status in verdict.reason
    assert verdict.url == URL


def test_deviation_that_depends_on_time_may_pass():
    row = replace(DEVIATION, may_pass=True)
    assert decide(None, row) == ("passed", "", "")
    assert decide(CheckFailed(f"it {row.message}"), row).verdict == "known_deviation"
    assert decide(CheckFailed("another failure"), row).verdict == "failed"


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_a_fixture_that_ends_well_proves_nothing(phase: str):
    assert decide(None, DEVIATION, phase=phase).verdict == "passed"


def test_the_message_may_come_from_elsewhere_than_the_exception():
    error = TrainerFailed("worker/0 ended with 1")
    assert decide(error, DEVIATION, message="log: of type PerReplica").verdict == "known_deviation"


def test_a_reason_is_one_line_that_fits_a_table():
    reason = decide(CheckFailed("\n  " + "é" * 1000 + "\nmore")).reason
    assert len(reason.encode()) <= 300
    assert "é ... 1.7 kB cut ... é" in reason
    assert "\n" not in reason
    assert decide(CheckFailed("")).reason == "no message"


def test_verdicts_are_six_from_worst_to_best():
    assert NAMES == (
        "failed",
        "harness_error",
        "unexpected_pass",
        "known_deviation",
        "unsupported",
        "passed",
    )
    assert {name for name in NAMES if is_red({name: 1})} == set(NAMES[:3])


@pytest.mark.parametrize("phases", [("passed", "failed"), ("failed", "passed", "harness_error")])
def test_worst_phase_sets_the_verdict(tmp_path: Path, phases: tuple[str, ...]):
    record = Recorder(tmp_path)
    for verdict in phases:
        found = {"test": "test_a", "measurements": [], "duration_s": 1.0}
        record.take({**found, "row": {"verdict": verdict}})
    (row,) = record.verdicts
    assert row == {"verdict": "failed", "duration_s": float(len(phases))}
