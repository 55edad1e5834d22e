"""Tests of series over runs: what changed with a change, and one-line refusals."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.history import page as history_page
from reports.history import series as history
from reports.history import tables as trends
from reports.render import terminal_layout
from reports.rundir import frame
from suite.meta.made_up_run import INFO, measured, write_measured
from suite.meta.test_reports_pages import Page

RUNS = 12
UPGRADE = 6  # the first run with the newer TensorFlow
OLD, NEW = "2.20.0", "2.21.0"
LOAD, SAVE = "load_s", "save_s"


def at(day: int, tensorflow: str = NEW, keras: str = NEW, commit: str = "a" * 40) -> dict[str, Any]:
    """Return run.json's facts of the run of that day."""
    versions = {**INFO["versions"], "tensorflow": tensorflow, "keras": {"tf_keras": keras}}
    day_of_run = f"2026-02-{day + 1:02}"
    return {
        "run_id": f"run-{day}",
        "start": f"{day_of_run}T03:04:05Z",
        "end": f"{day_of_run}T03:08:15Z",
        "versions": versions,
        "git": {"commit": commit, "dirty": False},
    }


def row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    return {"metric": metric, "value": value, **columns}


def wobbling(day: int) -> float:
    return 1 + 0.002 * (-2, 1, 0, 0, -1, 2)[day % 6]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write twelve nested runs and an interrupted one: loading got slower, saving did not."""
    directory = tmp_path_factory.mktemp("runs")
    for day in range(RUNS):
        later = day >= UPGRADE
        rows = [row(LOAD, 0.2 * wobbling(day) * (1.25 if later else 1))]
        rows += [row(SAVE, 0.5 * wobbling(day))]
        write_measured(directory / f"{day % 2}" / f"{day}", rows, **at(day, NEW if later else OLD))
    (directory / "interrupted" / "events" / "cluster").mkdir(parents=True)
    return directory


def print_history(capsys: Any, *arguments: Any) -> str:
    assert command.main(["history", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def shown(runs: Path) -> str:
    """Return the output over all runs on a wide terminal."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("COLUMNS", "160")
        assert command.main(["history", str(runs)]) == 0
    return out.getvalue()


def followed(days: Sequence[tuple[Mapping[str, Any], list[dict[str, Any]]]]) -> history.History:
    return history.build(
        [history.LoadedRuns(tuple(measured(rows, **info) for info, rows in days), ())]
    )


def test_change_point_is_listed_with_changed_versions(shown: str):
    of_changes = shown.split("Change points\n")[1]
    assert "2026-02-07 run-6" in of_changes
    assert "0.200 → 0.250" in of_changes
    assert "1.250 worse" in of_changes
    assert f"TensorFlow {OLD} → {NEW}\n" in of_changes
    assert SAVE not in of_changes


def test_every_series_has_a_line_with_trend(shown: str):
    series = shown.split("Versions\n")[0]
    assert f"{LOAD} (s, lower is better) · single_process · tf_keras" in series
    assert f"{SAVE} (s, lower is better) · single_process · tf_keras" in series
    assert "▁▁▁▁▁▁██████" in series
    assert "2026-02-07: 1.250" in series


def test_history_ends_with_counts(shown: str):
    assert shown.endswith(
        "\n12 runs from 2026-02-01 to 2026-02-12, 1 interrupted run left out, "
        "2 series; 1 change point: 1 worse.\n"
    )


def test_history_markdown_has_the_same_tables(runs: Path, capsys: Any):
    printed = print_history(capsys, runs, "--format", "md")
    assert [line for line in printed.splitlines() if line.startswith("#")] == [
        "### Series",
        "### Versions",
        "### Change points",
    ]
    assert f"| 1\\.250 worse | TensorFlow {OLD} → {NEW} |" in printed
    assert "1 change point: 1 worse." in printed


@pytest.mark.parametrize("width", [80, 140])
def test_history_lines_fit_terminal(runs: Path, monkeypatch: Any, capsys: Any, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    tables = print_history(capsys, runs).rpartition("\n\n")[0]
    assert max(map(len, tables.splitlines())) <= width


def test_trend_is_shown_without_unicode():
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert trends.trend(values) == "▁▂▃▄▅▆▇█"
    assert trends.trend(values).translate(terminal_layout.PLAIN) == ".:-=+*#%"


def test_trend_is_flat_for_noise_and_short_for_many_runs():
    assert set(trends.trend([100.0, 101, 100, 99, 100])) == {"▅", "▄"}
    assert trends.trend([0.0, 0.0]) == "▅▅"
    assert trends.trend([1.0] * 500 + [2.0] * 500) == "▁" * 10 + "█" * 10


def test_history_page_has_chart_per_series_and_loads_nothing(
    runs: Path, tmp_path: Path, capsys: Any
):
    output = tmp_path / "history.html"
    assert print_history(capsys, runs, "-o", output) == f"{output}\n"
    text = output.read_text()
    page = Page(text)
    pictures = [attrs["aria-label"] for tag, attrs in page.elements if tag == "svg"]
    shown = " ".join(page.text)
    assert (page.problems, page.open) == ([], [])
    assert len(pictures) == 2
    assert "1.250 times, worse" in shown
    assert f"TensorFlow {OLD} → {NEW}" in shown
    assert "1 interrupted run left out" in shown
    outer = page.values("src", "href", "xlink:href", "data", "action", "srcset")
    assert [value for _, value in outer if not value.startswith("#")] == []
    assert "url(http" not in text
    assert "default-src 'none'" in text


def test_dates_of_one_day_have_hours():
    run = datetime(2026, 2, 1, 8, 30, tzinfo=timezone.utc)
    same_day, next_day = run + timedelta(hours=11), run + timedelta(hours=24)
    assert history_page.dates([run, same_day]) == ["02-01 08:30", "02-01 19:30"]
    assert history_page.dates([run, next_day]) == ["2026-02-01", "2026-02-02"]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 12, 15, 16, 17, 100, 1000])
def test_date_labels_do_not_overlap(count: int):
    places = history_page.labeled_places(count)
    assert places[-1] == count - 1
    assert len({b - a for a, b in pairwise(places)}) <= 1
    assert all((b - a) / count >= 1 / history_page.DATES for a, b in pairwise(places))


def test_history_has_only_requested_metrics(runs: Path, shown: str, monkeypatch: Any, capsys: Any):
    monkeypatch.setenv("COLUMNS", "160")
    printed = print_history(capsys, runs, "--metric", SAVE)
    assert SAVE in printed
    assert LOAD not in printed
    both = print_history(capsys, runs, "--metric", SAVE, "--metric", LOAD)
    assert both == shown


def test_duplicate_directory_counts_once(runs: Path, shown: str, monkeypatch: Any, capsys: Any):
    monkeypatch.setenv("COLUMNS", "160")
    assert print_history(capsys, runs / "0", runs, runs / "interrupted") == shown


def test_runs_are_in_order_of_start():
    days = [({**at(2 - day), "run_id": f"{day}"}, [row(LOAD, 3.0 - day)]) for day in range(3)]
    (series,) = followed(days).series
    assert series.values == [1.0, 2.0, 3.0]


def test_run_value_is_median_of_repeats():
    repeats = [row(LOAD, value, repeat=i) for i, value in enumerate((1.0, 2.0, 9.0))]
    (series,) = followed([(at(day), repeats) for day in range(2)]).series
    assert series.values == [2.0, 2.0]


def test_series_continues_with_next_version_of_keras_flavor():
    days = [
        (at(d, keras=v), [row(LOAD, 1.0, keras=f"tf_keras {v}")]) for d, v in ((0, OLD), (1, NEW))
    ]
    (series,) = followed(days).series
    assert list(map(str, series.marks())) == [f"tf_keras {OLD} → {NEW}"]


def test_series_ignores_version_of_other_keras_flavor():
    days = [(at(d, keras=v), [row(LOAD, 1.0, keras="none")]) for d, v in ((0, OLD), (1, NEW))]
    (series,) = followed(days).series
    assert series.marks() == []


def test_change_without_changed_versions_says_so():
    days = [(at(day), [row(LOAD, 1.0 + (day > 5) + 0.01 * (day % 2))]) for day in range(12)]
    (series,) = followed(days).series
    assert [series.changed_with(change) for change in series.changes] == ["same versions"]


def test_new_commit_is_a_changed_version():
    days = [(at(day, commit=str(day) * 40), [row(LOAD, 1.0)]) for day in range(2)]
    (series,) = followed(days).series
    assert list(map(str, series.marks())) == [f"commit {'0' * 10} → {'1' * 10}"]


def test_changed_condition_is_listed_like_a_version():
    days = [({**at(d), "spawn": how}, [row(LOAD, 1.0)]) for d, how in ((0, "fork"), (1, "exec"))]
    (series,) = followed(days).series
    assert list(map(str, series.marks())) == ["Tasks started by fork → exec"]


@pytest.mark.parametrize(("better", "judged"), [("higher", "better"), ("lower", "worse")])
def test_direction_follows_better_column(better: str, judged: str):
    days = [(at(day), [row("x", 1.0 + (day > 5), better=better)]) for day in range(12)]
    (series,) = followed(days).series
    assert [series.direction(change.ratio) for change in series.changes] == [judged]


@pytest.mark.parametrize(
    "columns",
    [
        {"test": "suite/test_other.py::test_other"},
        {"trainer": "other"},
        {"keras": "keras3 3.15.1"},
        {"backend": "ring"},
        {"collective": "ring"},
        {"workers": 2},
        {"replicas": 2},
        {"fault": "sigkill"},
        {"variant": "other"},
        {"metric": "other"},
        {"unit": "ms"},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_different_setup_is_another_history_series(columns: dict[str, Any]):
    rows = [row(LOAD, 1.0), {**row(LOAD, 2.0), **columns}]
    found = followed([(at(day), rows) for day in range(2)]).series
    assert [series.values for series in sorted(found, key=lambda s: s.values)] == [[1, 1], [2, 2]]
    assert len({(series.heading, series.name) for series in found}) == 2


def test_metric_without_direction_is_no_series():
    rows = [row(LOAD, 1.0), row("published", 1.0, better="none")]
    (series,) = followed([(at(day), rows) for day in range(2)]).series
    assert series.key["metric"] == LOAD


def test_series_of_one_run_are_counted():
    days = [(at(0), [row(LOAD, 1.0), row("once", 1.0)]), (at(1), [row(LOAD, 1.0)])]
    assert ", 1 series, 1 more with one run only; 0 change points" in followed(days).outcome()


def only_one(runs: Path, _: Path) -> list[Any]:
    return [runs / "0" / "0", runs / "interrupted"]


def one_interrupted(runs: Path, tmp_path: Path) -> list[Any]:
    write_measured(tmp_path / "cut", [row(LOAD, 1.0)], **at(0), status="interrupted")
    return [runs / "0" / "0", tmp_path]


def damage(runs: Path, tmp_path: Path, *names: str) -> Path:
    """Copy the runs, and damage those with these names."""
    copy = shutil.copytree(runs, tmp_path / "runs")
    for name in names:
        (copy / name / "measurements.parquet").write_text("")
    return copy


def test_history_omits_damaged_run_with_one_line(runs: Path, tmp_path: Path, capsys: Any):
    copy = damage(runs, tmp_path, "0/4")
    assert command.main(["history", str(copy)]) == 0
    printed = capsys.readouterr()
    assert "11 runs from" in printed.out
    assert "1 interrupted run left out, 1 damaged run left out" in printed.out
    start = f"python -m reports history: left out: {copy / '0' / '4'}"
    assert printed.err.startswith(start)
    assert printed.err.count("\n") == 1


def test_history_is_rejected_without_complete_run(runs: Path, tmp_path: Path, capsys: Any):
    copy = damage(runs / "0", tmp_path, *(str(day) for day in range(0, RUNS, 2)))
    assert command.main(["history", str(copy)]) == command.BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "at least 2 runs, found 0" in printed.err.splitlines()[-1]


def same_id(runs: Path, tmp_path: Path) -> list[Any]:
    shutil.copytree(runs / "0" / "0", tmp_path / "copy")
    return [runs, tmp_path / "copy"]


def nothing_twice(_: Path, tmp_path: Path) -> list[Any]:
    for day in range(2):
        write_measured(tmp_path / f"{day}", [row(f"metric_{day}", 1.0)], **at(day))
    return [tmp_path]


def a_file(_: Path, tmp_path: Path) -> list[Any]:
    (tmp_path / "file").write_text("")
    return [tmp_path / "file"]


REFUSED = {
    "no run": (lambda _, tmp_path: [tmp_path], "at least 2 runs, found 0"),
    "one run": (only_one, "found 1 (1 more interrupted)"),
    "one run and one interrupted": (one_interrupted, "found 1 (1 more interrupted)"),
    "not there": (lambda _, tmp_path: [tmp_path / "x"], "does not exist"),
    "a file": (a_file, "is not a directory"),
    "one id twice": (same_id, "are both run 'run-0'"),
    "nothing twice": (nothing_twice, "in two of these runs"),
    "a metric that is not there": (
        lambda runs, _: [runs, "--metric", SAVE, "--metric", "x"],
        f"no metric 'x' in these runs; there is {LOAD}, {SAVE}",
    ),
    "a page that is a directory": (lambda runs, _: [runs, "-o", runs], "it is a directory"),
    "a page in no directory": (lambda runs, tmp: [runs, "-o", tmp / "x" / "y"], "is no directory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_history_without_series_is_rejected_in_one_line(
    runs: Path, tmp_path: Path, capsys: Any, name: str
):
    arguments, message = REFUSED[name]
    assert command.main(["history", *map(str, arguments(runs, tmp_path))]) == command.BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_run_directory_is_not_searched_for_runs(runs: Path, tmp_path: Path):
    outer = shutil.copytree(runs / "0" / "0", tmp_path / "outer")
    shutil.copytree(runs / "0" / "2", outer / "inner")
    assert [run.directory for run in history.load(tmp_path).runs] == [outer]
    assert frame.load(outer / "inner").run_id == "run-2"
