"""Tests that a run reports interference on the machine while it was timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.rundir import frame
from reports.sections import interference
from reports.sections.registry import SECTIONS
from suite.meta import made_up_run
from suite.meta.test_reports_paired import row

(SECTION,) = (section for section in SECTIONS if section.name == "machine")


def run_of(
    directory: Path, steals: list[float], load_1m: float = 0.1, foreign: float = 0.0123
) -> frame.RunFrames:
    """Write a run with one timed test for each steal share.

    `foreign` is the share that other processes used during the last one.
    """
    info = {**made_up_run.INFO, "exit_code": 0}
    info["machine"] = {**info["machine"], "load_1m": load_1m}
    rows: list[dict[str, Any]] = []
    for number, steal in enumerate(steals):
        test = {"test": made_up_run.test_id("benchmarks", "a", f"timed_{number}", "x")}
        rows += [row(interference.STEAL, steal, **test), row("machine_mhz", 2000 + number, **test)]
        share = foreign if number == len(steals) - 1 else 0.0
        rows.append(row("machine_foreign_share", share, **test))
    verdict = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    return made_up_run.write_numbers(directory, info, rows, [verdict])


def test_quiet_run_has_no_warning(tmp_path: Path):
    run = run_of(tmp_path / "run", [0.0, 0.01])
    (shown,) = SECTION.shown(run)
    (line,) = shown.rows
    assert line.cells == ("2", "0", "1.00", "1.23", "2000 to 2001", "0.100")
    assert SECTION.shown(run, brief=True) == []


@pytest.mark.parametrize(
    ("steals", "foreign", "load_1m", "says"),
    [
        ([0.0, 0.0], 0.06, 0.1, "Noisy: suite/benchmarks/test_a.py::test_timed_1[x]."),
        ([0.0, 0.03], 0.0, 0.1, "Noisy: suite/benchmarks/test_a.py::test_timed_1[x]."),
        ([0.03] * 7, 0.0, 0.1, "test_timed_4[x] and 2 others."),
        ([0.0], 0.0, 1.2, "The machine was busy before the run"),
    ],
)
def test_noisy_run_is_flagged_in_summary(
    tmp_path: Path, steals: list[float], foreign: float, load_1m: float, says: str
):
    run = run_of(tmp_path / "run", steals, load_1m, foreign)
    (shown,) = SECTION.shown(run, brief=True)
    assert says in shown.note


def test_run_timed_without_lock_is_flagged(tmp_path: Path):
    test = {"test": made_up_run.test_id("benchmarks", "a", "timed_0", "x")}
    both = [row(interference.STEAL, 0.0, **test), row(interference.LOCK, 0.0, **test)]
    verdict = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    info = {**made_up_run.INFO, "exit_code": 0}
    run = made_up_run.write_numbers(tmp_path / "run", info, both, [verdict])
    (shown,) = SECTION.shown(run, brief=True)
    assert "1 test timed without the timing lock, since another run" in shown.note
    assert interference.noisy(run) == [test["test"]]


def test_interference_is_empty_without_timed_tests(tmp_path: Path):
    assert SECTION.shown(run_of(tmp_path / "run", [])) == []
