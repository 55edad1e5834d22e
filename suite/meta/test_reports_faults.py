"""Tests of the fault table of several runs: verdicts, median, range, and runs kept separate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.rundir import frame
from reports.sections import fault_matrix
from suite.meta import made_up_run

GROUP = "keras_multi_worker_mirrored · tf_keras 2.21.0"


def run_of(
    directory: Path,
    seconds: float | None,
    given: str = "passed",
    *,
    leaks: Sequence[str] = (),
    cluster: str = "001-fault_matrix",
    **columns: Any,
) -> frame.RunFrames:
    """Write a run in which a worker was killed and the cluster recovered after `seconds`."""
    judged = made_up_run.verdict(
        *(made_up_run.MULTI, "fault_matrix", "fault_matrix", given),
        **{"folder": "faults", "fault": "sigkill", "variant": "worker, mid-epoch", **columns},
    )
    other = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    numbers = [
        {
            **{key: judged[key] for key in ("test", "trainer", "backend", "keras", "tensorflow")},
            "metric": metric,
            "value": value,
            "unit": unit,
        }
        for metric, value, unit in (
            ("fault_recovered_s", seconds, "s"),
            ("fault_steps_lost", 3, "1"),
        )
        if seconds is not None
    ]
    judged["events"] = [cluster]
    info = {**made_up_run.INFO, "run_id": directory.name, "leaks": list(leaks)}
    return made_up_run.write_numbers(directory, info, numbers, [judged, other])


def test_fault_matrix_of_runs_has_median_and_range(tmp_path: Path):
    values = {"a": 4.0, "b": 12.0, "c": 5.0}
    runs = [run_of(tmp_path / name, value) for name, value in values.items()]
    runs.append(run_of(tmp_path / "d", None, "known_deviation", reason="it hangs"))
    (row,) = fault_matrix.spread(runs).rows
    assert row.group == GROUP
    assert row.cells == (
        *("sigkill", "worker, mid-epoch", "4", "1 known deviation, 3 passed"),
        *("—", "5.00 (4.00 to 12.0)", "3 (3 to 3)"),
    )


def test_different_fault_rows_are_not_merged(tmp_path: Path):
    runs = [
        run_of(tmp_path / "a", 1.0),
        run_of(tmp_path / "b", 2.0, tensorflow="2.15.1"),
        run_of(tmp_path / "c", 3.0, variant="chief, mid-epoch"),
        run_of(tmp_path / "d", 4.0, fault="sigterm"),
        run_of(tmp_path / "e", 5.0, backend="nccl"),
    ]
    rows = fault_matrix.spread(runs).rows
    assert [row.cells[5] for row in rows if "2.15.1" in row.group] == ["2.00"]
    assert [row.cells[5] for row in rows if "nccl" in row.group] == ["5.00"]
    assert sorted(row.cells[5] for row in rows) == ["1.00", "2.00", "3.00", "4.00", "5.00"]
    assert {row.cells[2] for row in rows} == {"1"}


def test_faults_command_prints_fitting_text_and_markdown(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    for name, seconds in (("a", 14.04), ("b", 12.21)):
        run_of(tmp_path / name, seconds)
    directories = [str(tmp_path / name) for name in "ab"]
    assert command.main(["faults", *directories]) == 0
    text = capsys.readouterr().out
    assert GROUP in text
    assert "2 passed" in text
    assert text.splitlines()[-1] == "2 fault runs in 8 min: 2 passed; no leak."
    assert max(map(len, text.splitlines())) <= 80
    assert command.main(["faults", "--format", "md", *directories]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith(f"| {GROUP}")]
    assert "| 2 passed | — | 13.1 (12.2 to 14.0) | 3 (3 to 3) |" in line


@pytest.mark.parametrize(
    ("given", "leaks", "said", "code"),
    [
        ("known_deviation", [], "1 fault run in 4 min: 1 known deviation; no leak.", 0),
        ("harness_error", [], "1 fault run in 4 min: 1 harness error; no leak.", 1),
        ("failed", [], "1 fault run in 4 min: 1 failed; no leak.", 1),
        ("passed", ["python 77"], "1 fault run in 4 min: 1 passed; 1 leak.", 1),
    ],
)
def test_faults_command_fails_for_red_verdict_or_leak(
    tmp_path: Path, capsys: Any, given: str, leaks: list[str], said: str, code: int
):
    directory = run_of(tmp_path / "a", 1.0, given, reason="why", leaks=leaks).directory
    assert command.main(["faults", str(directory)]) == code
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_verdict_without_injected_fault_is_no_fault_run(tmp_path: Path):
    run = run_of(tmp_path / "a", 1.0, "known_deviation", reason="why", cluster="001-healthy")
    assert fault_matrix.tally([run]) == ("0 fault runs in 4 min: none; no leak", True)


def test_faults_command_rejects_missing_fault_or_duplicate(tmp_path: Path, capsys: Any):
    healthy = str(made_up_run.write_small(tmp_path / "healthy"))
    faulted = str(run_of(tmp_path / "a", 1.0).directory)
    for directories, message in (
        ([healthy], "no fault of the matrix was injected"),
        ([faulted, faulted], "are both run"),
        ([faulted, str(tmp_path / "missing")], "does not exist"),
    ):
        assert command.main(["faults", *directories]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert message in printed.err


@pytest.mark.parametrize("text", ["[]", '{"test": 1}', "{", '{"test": [1]}'])
def test_damaged_histories_file_is_rejected_in_one_line(tmp_path: Path, capsys: Any, text: str):
    directory = run_of(tmp_path / "a", 1.0).directory
    (directory / frame.HISTORIES).write_text(text)
    assert command.main(["html", str(directory)]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert frame.HISTORIES in printed.err


def test_page_is_written_without_histories_file(tmp_path: Path, capsys: Any):
    directory = run_of(tmp_path / "a", 1.0).directory
    (directory / frame.HISTORIES).unlink()
    assert command.main(["html", str(directory)]) == 0
    assert "Timelines" not in (directory / "report.html").read_text()
    assert capsys.readouterr().err == ""


def test_fault_runs_with_former_names_are_counted(tmp_path: Path):
    names = {
        "cluster": "077-cut-worker-mid-epoch",
        "test": "suite/faults/test_fault_table.py::test_what_a_fault_does[x-cut-worker-mid-epoch]",
        "fault": "cut",
    }
    run = frame.load(run_of(tmp_path / "a", 1.0, **names).directory)
    assert fault_matrix.tally([run]) == ("1 fault run in 4 min: 1 passed; no leak", True)
