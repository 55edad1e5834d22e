"""Tests of ratios to a frozen side: their rows, the gate, the history, and trials on records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports import __main__ as command
from reports.ab import pairs, ratios
from reports.compare import gate, output, run_groups
from reports.history import series as history
from reports.stats.ratio_tests import Answer
from suite.campaigns import ratio_trials
from suite.meta import made_up_pair, made_up_run
from suite.meta.test_reports_paired import TEST, row

PAIRS = 12


def turns(ratio: float, seed: int = 1, noise: float = 0.005, **new: Any) -> Iterator[dict]:
    """Yield the turns of pairs of processes that differ by `noise` around the ratio."""
    draw = random.Random(seed)
    for pair in range(PAIRS):
        own = ratio * draw.gauss(1, noise)
        for _ in range(10):
            speed = 0.010 * draw.uniform(0.9, 1.3)
            for side, time_s in (("base", speed), ("new", own * speed)):
                columns = {"variant": side, "repeat": pair, **(new if side == "new" else {})}
                yield row(pairs.TIME, time_s, **columns)


def controls(ratio: float) -> list[dict[str, Any]]:
    values = (ratio * (1 + 0.001 * (-1) ** i) for i in range(PAIRS))
    return [row(pairs.CONTROL, value, repeat=i, better="none") for i, value in enumerate(values)]


def side(name: str, ratio: float, control: float | None = None, **how: Any) -> run_groups.Side:
    rows = [*turns(ratio, seed=sum(map(ord, name)), **how)]
    rows += controls(control) if control else []
    return made_up_pair.side(name, rows)


def answer(base: run_groups.Side, new: run_groups.Side) -> Answer:
    (found,) = gate.compare(base, new).series
    assert found.key["metric"] == ratios.RATIO
    return found.answer


def test_each_pair_of_processes_is_one_ratio():
    run = made_up_pair.run("a", turns(1.1, noise=0, tensorflow="2.99.0"))
    found = ratios.with_ratios(run.measurements, run.verdicts)
    own = found.loc[found["metric"] == ratios.RATIO]
    assert list(own["repeat"]) == list(range(PAIRS))
    assert list(own["value"]) == pytest.approx([1.1] * PAIRS)
    assert set(own["tensorflow"]) == {"2.99.0"}  # that of the new side
    assert set(own["better"]) == {"lower"}
    assert len(found) == len(run.measurements) + PAIRS


@pytest.mark.parametrize(
    ("new", "more"),
    [({}, ""), ({"trainer": "another"}, f", {made_up_run.SINGLE}"), ({"workers": 2}, ", 1 worker")],
)
def test_the_series_is_named_by_the_base(new: dict[str, Any], more: str):
    run = made_up_pair.run("a", turns(1.1, **new))
    (name,) = set(ratios.with_ratios(run.measurements, run.verdicts)["variant"]) - {"base", "new"}
    base = made_up_run.COMMON
    versions = f"TensorFlow {base['tensorflow']}, {base['keras']}, Python {base['python']}"
    assert name == f"to {versions}{more}"


def test_runs_without_pairs_are_as_they_were():
    run = made_up_pair.run("a", made_up_pair.step_times(made_up_pair.usual()))
    assert ratios.with_ratios(run.measurements, run.verdicts) is run.measurements


def test_a_comparison_that_failed_has_no_ratio():
    same = {"run_id": made_up_run.RUN_ID, "test": TEST}
    judged = made_up_run.verdict(made_up_run.SINGLE, "paired", "paired", "failed", **same)
    run = made_up_pair.run("a", turns(1.1), [judged])
    assert ratios.with_ratios(run.measurements, run.verdicts) is run.measurements


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.0, Answer.NO_CHANGE),
        (1.05, Answer.REGRESSION),
        (0.95, Answer.IMPROVEMENT),
    ],
)
def test_runs_of_different_days_are_compared_by_their_ratio(ratio: float, expected: Answer):
    """The step times of the two runs may differ by any factor."""
    assert answer(side("monday", 1.3), side("friday", 1.3 * ratio)) is expected


def test_a_bad_day_widens_the_threshold():
    """The base differs from itself by 6 %, so a change of 5 % shows nothing."""
    assert answer(side("monday", 1.0, 1.0), side("friday", 1.05, 1.0)) is Answer.REGRESSION
    assert answer(side("monday", 1.0, 1.0), side("friday", 1.05, 1.06)) is Answer.CANNOT_TELL


def test_a_comparison_says_how_much_ratios_drift():
    found = gate.compare(side("monday", 1.0, 1.06), side("friday", 1.0, 1.06))
    (note,) = (text for text in output.notes(found) if text.startswith("Ratios to a base"))
    assert "Their own drift is 6 %" in note
    other = made_up_pair.side("a", made_up_pair.step_times(made_up_pair.usual()))
    again = made_up_pair.side("b", made_up_pair.step_times(made_up_pair.usual()))
    assert gate.compare(other, again).ratio_drift is None


def test_the_drift_of_controls_is_what_their_pairs_do_not_explain():
    run = made_up_pair.run("a", controls(1.06))
    assert ratios.drift(run.measurements) == pytest.approx(np.log(1.06), rel=0.01)
    assert ratios.drift(run.measurements.iloc[:0]) == ratios.DRIFT
    assert ratios.drift(made_up_pair.run("b", controls(1.0)).measurements) == pytest.approx(
        ratios.DRIFT
    )


def test_the_control_is_in_the_table_of_a_comparison():
    (found,) = pairs.series(made_up_pair.run("a", [*turns(1.0), *controls(1.02)]).measurements)
    (line,) = pairs.table([found], [Answer.NO_CHANGE]).rows
    assert line.cells[-1] == "1.020"


def test_the_history_follows_ratios(tmp_path: Path, capsys: Any):
    for day in range(8):
        level = 1.0 if day < 4 else 1.06
        start = f"2026-01-{day + 1:02}T00:00:00+00:00"
        rows = [{**one, "run_id": f"day-{day}"} for one in turns(level, seed=day)]
        made_up_pair.write(tmp_path / f"day-{day}", rows, start=start, end=start)
    loaded = history.load(tmp_path)
    (series,) = history.build([loaded], [ratios.RATIO]).series
    assert [change.place for change in series.changes] == [4]
    assert command.main(["history", str(tmp_path)]) == 0
    assert "1 change point: 1 worse" in capsys.readouterr().out


def recorded(slower: float, count: int, first: int, fault: str = "") -> list[Any]:
    """Return runs with a new side that is slower; `fault`: what their records say of it."""
    return [
        made_up_pair.run(f"run-{i}", turns(1 + slower, seed=i, fault=fault))
        for i in range(first, first + count)
    ]


def test_trials_compare_every_run_with_every_later_one():
    runs = [*recorded(0, 6, 0), *recorded(0.05, 3, 10, "5 % slower")]
    clean, slowed = ratio_trials.run_trials(runs)
    assert (clean.injected, clean.counts.total()) == (0, 15)
    assert (slowed.injected, slowed.counts[Answer.REGRESSION]) == (0.05, 18)
    assert (clean.share, slowed.share) == (0, 1)
    assert ratio_trials.acceptable([clean, slowed])
    cells = [line.cells[1:3] for line in ratio_trials.table([clean, slowed]).rows]
    assert cells == [("nothing", "15"), ("5 %", "18")]


def test_trials_with_false_alarms_or_misses_are_not_acceptable():
    """Runs that are slower without being recorded as such are false alarms."""
    alarms, *_ = ratio_trials.run_trials([*recorded(0, 3, 0), *recorded(0.2, 3, 10)])
    assert alarms.share == pytest.approx(9 / 15)
    assert not ratio_trials.acceptable([alarms])
    low, high = alarms.interval()
    assert low < alarms.share < high
    missed = [*recorded(0, 3, 0), *recorded(0, 3, 10, "5 % slower")]
    assert not ratio_trials.acceptable(ratio_trials.run_trials(missed)[1:])
