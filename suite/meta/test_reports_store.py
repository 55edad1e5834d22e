"""Tests that a run directory holds the complete run, or is not recognized as a run."""

from __future__ import annotations

import csv
import errno
import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import reports
from reports.core import verdicts
from reports.render import pages
from reports.rundir import frame, writer
from suite.meta import made_up_run

made_up = made_up_run.made_up

FILES = (
    "histories.json",
    "measurements.parquet",
    "measurements.csv",
    "verdicts.parquet",
    "verdicts.csv",
    "run.json",
)
PAGES = ("report.md", "report.html")


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.is_file()}


def write_small(directory: Path, **row: Any) -> None:
    verdict = {**made_up_run.verdict(made_up_run.SINGLE, "export", "loads"), **row}
    run = writer.write(directory, made_up_run.INFO, made_up_run.measurements()[-1:], [verdict])
    assert pages.write_pages(run) == []


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Simulate a full disk: a write beyond the size raises OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_written_run_is_read_back(made_up: Path):
    run = frame.load(made_up)
    numbers, judged = made_up_run.measurements(), made_up_run.verdicts()
    assert tuple(run.measurements) == frame.MEASUREMENT_COLUMNS
    assert tuple(run.verdicts) == frame.VERDICT_COLUMNS
    assert list(run.measurements["value"]) == [row["value"] for row in numbers]
    assert list(run.verdicts["test"]) == [row["test"] for row in judged]
    assert [list(claims) for claims in run.verdicts["claims"]] == [row["claims"] for row in judged]
    assert set(run.verdicts["run_id"]) == {made_up_run.RUN_ID}
    assert set(names(made_up)) >= {*FILES, *PAGES}


def test_missing_integers_stay_missing(made_up: Path):
    run = frame.load(made_up)
    rows = run.measurements
    missing = rows.loc[rows["workers"].isna(), "metric"]
    assert list(missing) == ["zygote_import_s"]
    assert str(rows["workers"].dtype) == "Int64"
    assert rows["workers"].max() == 32


def test_csv_equals_parquet_with_claims_joined_by_blanks(made_up: Path):
    with (made_up / "verdicts.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    run = frame.load(made_up)
    assert tuple(rows[0]) == frame.VERDICT_COLUMNS
    assert [row["claims"] for row in rows] == [" ".join(c) for c in run.verdicts["claims"]]
    assert [row["reason"] for row in rows] == list(run.verdicts["reason"])


def test_six_verdicts_are_counted_separately(made_up: Path):
    info = json.loads((made_up / "run.json").read_text())
    assert set(info["counts"]) == set(verdicts.NAMES)
    assert info["counts"] == frame.load(made_up).counts
    assert min(info["counts"].values()) > 0


def test_runs_are_concatenated(made_up: Path, tmp_path: Path):
    made_up_run.write_small(tmp_path / "other", run_id="other")
    measurements, judged = frame.tidy(map(frame.load, (made_up, tmp_path / "other")))
    assert set(measurements["run_id"]) == set(judged["run_id"]) == {made_up_run.RUN_ID, "other"}
    assert len(judged) == len(made_up_run.verdicts()) + 1


def test_runs_of_equal_id_are_rejected(made_up: Path):
    with pytest.raises(frame.BadInput, match="are both run"):
        frame.tidy([frame.load(made_up), frame.load(made_up)])


def test_control_characters_are_cleaned_in_files(tmp_path: Path):
    write_small(
        tmp_path, verdict="failed", reason="a\udcffb\x00c\x1b[31md\x1b]0;title\x07e\r\nf\x9bg"
    )
    shown = "a\ufffdb\\x00cd\\x1b]0;title\\x07e\nf\\x9bg"
    assert frame.load(tmp_path).verdicts["reason"][0] == shown


def test_text_is_bounded_in_every_file(tmp_path: Path):
    endless = "<b>" * 1_000_000
    write_small(tmp_path, verdict="failed", reason=endless, diagnosis=endless)
    sizes = {path.name: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 1_000_000  # a page has `<` as four characters
    (diagnosis,) = (tmp_path / "diagnosis").iterdir()
    assert "2.9 MB cut" in diagnosis.read_text()
    assert "3.0 MB cut" in frame.load(tmp_path).verdicts["reason"][0]


def test_run_facts_are_bounded(tmp_path: Path):
    """A leaked process may have a command line of any length."""
    info = {**made_up_run.INFO, "leaks": ["process 7: <" * 1_000_000], "seed": 7}
    pages.write_pages(made_up_run.write_numbers(tmp_path, info, [], []))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 400_000
    (leak,) = frame.load(tmp_path).info["leaks"]
    assert "11.9 MB cut" in leak
    assert frame.load(tmp_path).info["seed"] == 7


def without(columns: tuple[str, ...], path: Path) -> None:
    pq.write_table(pq.ParquetFile(path).read().drop_columns(list(columns)), path)


def test_older_run_reads_missing_columns_as_null(tmp_path: Path):
    write_small(tmp_path, scenario="healthy", scenario_start=made_up_run.TIME, scenario_s=2.5)
    (row,) = frame.load(tmp_path).verdicts.to_dict("records")
    assert (row["scenario"], row["scenario_s"]) == ("healthy", 2.5)
    assert row["suite"] == made_up_run.INFO["versions"]["suite"]
    assert row["scenario_start"].isoformat() == made_up_run.TIME.replace("Z", "+00:00")
    without(frame.APPENDED, tmp_path / "verdicts.parquet")
    (row,) = frame.load(tmp_path).verdicts.to_dict("records")
    assert tuple(row) == frame.VERDICT_COLUMNS
    assert row["scenario"] == row["suite"] == ""
    assert pd.isna(row["scenario_start"])
    assert pd.isna(row["scenario_s"])
    without(("reproduce",), tmp_path / "verdicts.parquet")
    with pytest.raises(frame.BadInput, match="lacks the column 'reproduce'"):
        frame.load(tmp_path)


def test_diagnosis_is_stored_in_run_directory(made_up: Path):
    failed = next(row for row in made_up_run.verdicts() if row["verdict"] == "failed")
    assert frame.load(made_up).diagnosis(failed["test"]) == made_up_run.DIAGNOSIS


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"verdict": "error"}, "none of the six"),
        ({"verdict": ""}, "no 'verdict'"),
        ({"test": ""}, "no 'test'"),
        ({"seed": 1}, "unknown column 'seed'"),
        ({"workers": "two"}, "invalid literal"),
    ],
)
def test_invalid_row_is_rejected_before_writing(tmp_path: Path, row: dict, message: str):
    with pytest.raises(ValueError, match=message):
        write_small(tmp_path / "run", **row)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": float("nan")}, "not a finite number"),
        ({"value": float("inf")}, "not a finite number"),
        ({"value": None}, "no 'value'"),
        ({"better": "more"}, "better is 'more'"),
        ({"metric": ""}, "no 'metric'"),
    ],
)
def test_measurement_without_number_is_rejected(columns: dict, message: str):
    with pytest.raises(ValueError, match=message):
        frame.measurement_row(**{**made_up_run.measurements()[0], **columns})


def test_run_info_without_required_key_is_rejected(tmp_path: Path):
    info = {key: value for key, value in made_up_run.INFO.items() if key != "seed"}
    with pytest.raises(ValueError, match="seed"):
        writer.write(tmp_path / "run", info, [], [])
    assert not (tmp_path / "run").exists()


@pytest.fixture(params=[*FILES, *PAGES])
def unwritable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make writing one file of the run directory fail for lack of space; return its name."""

    def replace(source: Path, target: Path) -> None:
        if Path(target).name == request.param:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(source, target)

    monkeypatch.setattr(writer.os, "replace", replace)
    return request.param


def test_failed_write_leaves_only_files_before_it(tmp_path: Path, unwritable: str):
    with pytest.raises(OSError, match=f"cannot write .*{unwritable}: No space left on device"):
        write_small(tmp_path)
    written = [*FILES, *PAGES]
    assert names(tmp_path) == set(written[: written.index(unwritable)])
    if unwritable in PAGES:
        frame.load(tmp_path)
        return
    with pytest.raises(frame.BadInput, match="killed"):
        frame.load(tmp_path)


def test_full_disk_leaves_no_partial_file(tmp_path: Path):
    with files_limited_to(4_000), pytest.raises(OSError, match=r"cannot write .*: File too large"):
        write_small(tmp_path)
    assert "run.json" not in names(tmp_path)
    assert names(tmp_path) < set(FILES)


def test_rewriting_deletes_old_run_json_first(tmp_path: Path):
    write_small(tmp_path)
    with files_limited_to(100), pytest.raises(OSError, match="cannot write"):
        write_small(tmp_path)
    assert "run.json" not in names(tmp_path)


def test_error_names_directory_that_cannot_be_created(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write .*file/run: Not a directory"):
        write_small(tmp_path / "file" / "run")


def test_device_is_written_in_place():
    with pytest.raises(OSError, match="cannot write /dev/full: No space left on device"):
        writer.write_file(Path("/dev/full"), "text")
    writer.write_file(Path("/dev/null"), "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_link_is_written_through(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    writer.write_file(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


def test_public_reader_is_reports_frame():
    assert reports.frame is frame
    with pytest.raises(AttributeError, match="'reports' has no attribute 'frames'"):
        reports.frames  # noqa: B018
