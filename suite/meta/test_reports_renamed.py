"""Tests of renamed identifiers in older records: every reader sees the present names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports import __main__ as command
from reports.rundir import event_files, frame, renamed
from suite.harness.faults.matrix import FAULTS, ROWS
from suite.meta import made_up_run, sources

BEFORE = "suite/faults/test_fault_table.py::test_what_a_fault_does[dtensor-{}-worker-mid-epoch]"
AFTER = "suite/faults/test_fault_matrix.py::test_fault_matrix[dtensor-{}-worker-mid-epoch]"


def test_each_present_name_exists():
    assert set(renamed.TESTS.values()) <= sources.tests()
    assert set(renamed.FAULTS.values()) <= set(FAULTS) == {row.fault for row in ROWS}
    assert all((sources.ROOT / path).is_file() for path in renamed.FILES.values())


def test_no_former_name_is_in_use():
    assert not set(renamed.TESTS) & sources.tests()
    assert not set(renamed.FAULTS) & set(FAULTS)


@pytest.mark.parametrize(("before", "after"), renamed.FAULTS.items())
def test_test_id_is_present_name_of_file_test_and_fault(before: str, after: str):
    assert renamed.test_id(BEFORE.format(before)) == AFTER.format(after)
    assert renamed.test_id(AFTER.format(after)) == AFTER.format(after)
    assert renamed.scenario(f"{before}-chief-forming") == f"{after}-chief-forming"


def test_name_with_prefix_of_fault_is_unchanged():
    for node_id in (
        "test_x.py::test_y[cut-off]",
        "suite/x.py::test_z[a-latest-b]",
        "",
        "test_x.py",
    ):
        assert renamed.test_id(node_id) == node_id


def record(directory: Path, test: str, fault: str) -> frame.RunFrames:
    """Write a run of one test, with three processes of one throughput figure; read it."""
    names = {"test": test, "fault": fault}
    info = {**made_up_run.INFO, "run_id": directory.name, "exit_code": 0}
    timed = [row for row in made_up_run.measurements() if row.get("trainer") == made_up_run.MULTI]
    judged = made_up_run.verdict(made_up_run.MULTI, "fault", "fault")
    numbers = [{**row, **names} for row in timed if row["backend"] == "auto"]
    made_up_run.write_numbers(directory, info, numbers, [{**judged, **names}])
    return frame.load(directory)


def test_old_record_is_comparable_with_renamed_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = record(tmp_path / "before", BEFORE.format("cut"), "cut")
    after = record(tmp_path / "after", AFTER.format("link-down"), "link-down")
    for table in ("verdicts", "measurements"):
        assert getattr(before, table)[["test", "fault"]].equals(
            getattr(after, table)[["test", "fault"]]
        )
    directories = [str(run.directory) for run in (before, after)]
    assert command.main(["compare", *directories]) == 0
    monkeypatch.setattr(frame, "RENAMED", {})
    assert command.main(["compare", *directories]) == 2  # nothing has a counterpart


@pytest.mark.parametrize(("before", "after"), renamed.METRICS.items())
def test_metric_of_old_record_has_present_name(tmp_path: Path, before: str, after: str):
    rows = [{"metric": before, "value": 1.0}, {"metric": "other_s", "value": 2.0}]
    run = frame.load(made_up_run.write_measured(tmp_path / "run", rows))
    assert list(run.measurements["metric"]) == [after, "other_s"]


def test_events_of_old_record_have_present_fault_names(tmp_path: Path):
    made_up_run.write_lines(
        tmp_path / "harness.jsonl",
        [made_up_run.event("fault_started", 1.0, "worker/0", fault="blink")],
    )
    (event,) = event_files.of_cluster(tmp_path)
    assert event["fault"] == "link-flap"
