"""Tests of figures in the reports: intervals, digits and the text for a missing figure."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pandas as pd
import pytest

from reports.core.table import Column
from reports.core.text import figure, slug
from reports.render.terminal_layout import broken_lines, packed, widths
from reports.rundir import frame
from reports.sections import fault_matrix, published_figures, startup, throughput
from reports.stats.intervals import Estimate, mean, middle
from suite.meta import made_up_run

made_up = made_up_run.made_up


def test_mean_has_student_interval():
    estimate = mean([1, 2, 3])  # t(2 degrees, 97.5 %) = 4.302653
    assert estimate.center == 2
    assert estimate.high - 2 == pytest.approx(4.302653 / math.sqrt(3), abs=1e-6)
    assert 2 - estimate.low == pytest.approx(estimate.high - 2)


def test_one_value_has_no_interval():
    assert not mean([5.0]).known
    assert mean([5.0]).plus_minus() == "5.00"
    assert not middle([1, 2, 3, 4, 5]).known
    assert middle([1, 2, 3, 4, 5]).interval() == "—"


@pytest.mark.parametrize(("count", "cut"), [(6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (20, 5)])
def test_median_has_interval_of_published_tables(count: int, cut: int):
    estimate = middle(range(count))
    assert (estimate.low, estimate.high) == (cut, count - 1 - cut)


def test_intervals_have_nominal_coverage():
    draw = random.Random(7)
    samples = [[draw.gauss(10, 1) for _ in range(7)] for _ in range(2000)]
    for estimates in (map(mean, samples), map(middle, samples)):
        covered = sum(estimate.low <= 10 <= estimate.high for estimate in estimates)
        assert 0.935 < covered / len(samples) < 0.995


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (Estimate(3, 12.3456, 12.3, 12.4), "12.346 ±0.050"),
        (Estimate(3, 30720.4, 29957, 31483), "30,720 ±763"),
        (Estimate(3, 5, 5, 5), "5.00 ±0.00"),
        (Estimate(3, 0.5, -0.5, 1.5), "0.50 ±1.0"),
        (Estimate(2, 0.25, 0.0, 98.0), "0.25 ±49"),
    ],
)
def test_interval_has_significant_digits(estimate: Estimate, shown: str):
    assert estimate.plus_minus() == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (9.999, "10.0"),
        (1234567, "1,234,567"),
        (-2.5, "-2.50"),
        (None, "—"),
        (math.nan, "—"),
    ],
)
def test_figure_has_three_digits(value: float | None, shown: str):
    assert figure(value) == shown


def test_fault_matrix_line_has_its_own_numbers(made_up: Path):
    run = frame.load(made_up)
    (faulted,) = (row for row in run.verdicts.to_dict("records") if row["fault"])
    usual = run.measurements.iloc[0].to_dict()
    lines = [
        {**usual, "test": test, "metric": metric, "value": value}
        for test, metric, value in (
            (faulted["test"], "fault_detection_s", 0.123),
            (faulted["test"], "fault_steps_lost", 20.0),
            (faulted["test"], "fault_save_s", 0.25),
            ("another", "fault_recovered_s", 9.9),
        )
    ]
    shown = frame.RunFrames(run.directory, run.info, pd.DataFrame(lines), run.verdicts)
    (row,) = fault_matrix.table(shown).rows
    assert row.group == "supervisor_parameter_server"
    assert row.cells == ("sigkill", "worker, mid-epoch", "passed", "0.123", "—", "20", "0.250", "—")


def test_published_figure_is_shown_with_ours_and_interval(made_up: Path):
    run = frame.load(made_up)
    usual = run.measurements.iloc[0].to_dict()

    def figures(quantity: str, **values: float) -> list[dict[str, object]]:
        variant = f"backup: {quantity}"
        metrics = {f"published_{name}": value for name, value in values.items()}
        return [{**usual, "variant": variant, "metric": m, "value": v} for m, v in metrics.items()]

    rows = [
        *figures("loss of epoch 1", low=2.0, high=2.5, ours=2.25, document=2.3),
        *figures("loss of epoch 2", low=1.0, high=1.5, ours=1.25, document=0.5),
        *figures("loss of epoch 3", low=1.0, high=1.5, ours=1.6),
    ]
    shown = frame.RunFrames(run.directory, run.info, pd.DataFrame(rows), run.verdicts)
    assert [row.cells for row in published_figures.table(shown).rows] == [
        ("loss of epoch 1", "2.3000", "2.2500", "2.0000 to 2.5000", "yes"),
        ("loss of epoch 2", "0.5000", "1.2500", "1.0000 to 1.5000", "NO"),
        ("loss of epoch 3", "—", "1.6000", "1.0000 to 1.5000", "NO"),
    ]
    assert "No published figure" in published_figures.table(run).note


def test_throughput_has_one_value_per_process(made_up: Path):
    cases = throughput.summarize(frame.load(made_up).measurements)
    nccl = cases[cases["backend"] == "nccl"].iloc[0]
    assert (nccl["collective"], nccl["processes"], nccl["workers"]) == ("ring", 3, 2)
    assert nccl["steps_per_s"].center == pytest.approx(11.5)
    assert nccl["p50_s"] == pytest.approx(1 / 11.5)


def test_throughput_shows_missing_metric(made_up: Path):
    run = frame.load(made_up)
    few = run.measurements.loc[run.measurements["metric"] == "throughput_steps_per_s"]
    table = throughput.table(frame.RunFrames(run.directory, run.info, few, run.verdicts))
    assert table.rows[0].cells[-4:] == ("—", "—", "—", "—")


def test_startup_is_relative_to_fork(made_up: Path):
    cases = startup.summarize(frame.load(made_up).measurements)
    times = cases.dropna(subset="times_base").set_index("variant")["times_base"]
    assert times["fork"] == 1
    assert times["cold"] == pytest.approx(12.5)
    assert times["multi_process_runner"] == pytest.approx(2.5)


def test_ratio_has_its_recorded_interval(made_up: Path):
    cases = startup.summarize(frame.load(made_up).measurements).set_index("metric")
    ratio = cases.loc["cluster_first_all_reduce_ratio", "estimate"]
    assert (ratio.low, ratio.center, ratio.high) == (11.9, 12.5, 13.1)
    assert not [metric for metric in cases.index if metric.endswith(startup.ENDS)]
    table = startup.table(frame.load(made_up))
    assert any(row.cells[-2] == "11.9 to 13.1" for row in table.rows)


def test_names_break_at_separators():
    assert broken_lines("keras_multi_worker_mirrored", 13) == [
        "keras_multi_",
        "worker_",
        "mirrored",
    ]
    assert broken_lines("a b", 80) == ["a b"]
    assert "".join(broken_lines("unbreakablelongname", 5)) == "unbreakablelongname"
    assert packed(["aa", "bb", "cc"], ", ", 6) == ["aa, bb", "cc"]


def test_columns_shrink_only_as_needed():
    columns = (Column("name"), Column("long heading", right=True))
    breakable = "x_" * 15
    assert widths(columns, [(breakable, "1")], 80) == [30, 12]
    assert widths(columns, [(breakable, "1")], 40) == [30, 7]
    assert widths(columns, [(breakable, "1")], 30) == [21, 7]


def test_widest_columns_shrink_to_their_longest_part():
    columns = (Column("name"), Column("verdict"), Column("s", right=True))
    row = ("worker, mid-epoch", "known deviation", "1")
    assert widths(columns, [row], 37) == [17, 15, 1]
    assert widths(columns, [row], 31) == [13, 13, 1]
    assert widths(columns, [row], 10) == [len("mid-epoch"), len("deviation"), 1]


def test_file_names_of_tests_are_short_and_distinct():
    ids = [f"suite/test_a.py::test_b[{'x' * 200}-{case}]" for case in "ab"]
    names = {slug(test) for test in ids}
    assert len(names) == 2
    assert all(len(name) <= 120 and "/" not in name for name in names)
    assert slug("...") == "test"
