"""Tests of interleaved sides: the ratio, its answer, the sides' names, unpaired numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from reports.ab import pairs as paired
from reports.core.text import MISSING
from reports.rundir import frame
from reports.rundir.frame import BadInput
from reports.stats.ratio_tests import Answer
from suite.meta import made_up_run

TEST = made_up_run.test_id("benchmarks", "paired", "paired", "single_process-tf_keras")


def row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    common = {**made_up_run.COMMON, "test": TEST, "trainer": made_up_run.SINGLE, "workers": 1}
    unit = "s" if metric.endswith("_s") else "1"
    values = {"run_id": made_up_run.RUN_ID, "metric": metric, "value": value, "unit": unit}
    return frame.measurement_row(**{**common, "backend": "none", **values, **columns})


def turns(ratio: float, pairs: int = 12, **new: Any) -> Iterator[dict[str, Any]]:
    """Yield steps of 10 ms, and of `ratio` times that, with the noise of a shared machine."""
    draw = random.Random(5)
    for pair in range(pairs):
        own = draw.gauss(0, 0.005)
        for _ in range(10):
            speed = draw.uniform(0.9, 1.3)  # noise that affects both sides equally
            sides = {"base": 1.0, "new": ratio * (1 + own)}
            for side, times in sides.items():
                time_s = 0.010 * speed * times * draw.gauss(1, 0.01)
                columns = {"variant": side, "repeat": pair, **(new if side == "new" else {})}
                yield row(paired.TIME, time_s, **columns)
        for side in paired.SIDES:
            yield row(paired.START_UP, 6.0, variant=side, repeat=pair)


def measured(*rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> pd.DataFrame:
    listed = [one for found in rows for one in found]
    return frame.data_frame(frame.table(frame.MEASUREMENTS, listed))


@pytest.mark.parametrize(
    ("ratio", "answer"),
    [
        (1.0, Answer.NO_CHANGE),
        (1.05, Answer.REGRESSION),
        (0.95, Answer.IMPROVEMENT),
        (1.019, Answer.CANNOT_TELL),
    ],
)
def test_paired_answer_follows_ratio(ratio: float, answer: Answer):
    (found,) = paired.series(measured(turns(ratio)))
    assert found.effect.low < ratio < found.effect.high
    assert paired.answers_of([found]) == [answer]
    assert found.step_s["base"] == pytest.approx(0.011, rel=0.1)


def test_significance_level_covers_all_comparisons():
    (found,) = paired.series(measured(turns(1.03, pairs=8)))
    assert paired.answers_of([found]) == [Answer.REGRESSION]
    assert paired.answers_of([found] * 1_000_000)[0] is Answer.CANNOT_TELL


def test_too_few_pairs_give_cannot_tell():
    for pairs, answer in ((7, Answer.CANNOT_TELL), (8, Answer.REGRESSION)):
        (found,) = paired.series(measured(turns(1.2, pairs=pairs)))
        assert paired.answers_of([found]) == [answer]


def test_paired_table_has_timed_seconds_and_end_reason():
    timed = [row("paired_timed_s", 3.0, repeat=pair) for pair in range(40)]
    (quiet,) = paired.series(measured(turns(1.0, pairs=40), timed))
    assert (quiet.timed_s, quiet.ended) == (120.0, "enough")
    (short,) = paired.series(measured(turns(1.0, pairs=3)))
    assert short.ended == "budget"


@pytest.mark.parametrize(
    ("new", "labels"),
    [
        ({}, ("identical", "identical")),
        ({"backend": "nccl", "collective": "ring"}, ("none", "nccl → ring")),
        ({"trainer": "other", "workers": 2}, ("single_process, 1 worker", "other, 2 workers")),
        ({"fault": "5 % slower"}, ("unmodified", "5 % slower")),
        ({"keras": "keras3 3.15.1"}, ("tf_keras 2.21.0", "keras3 3.15.1")),
        (
            {"tensorflow": "2.22.0", "python": "3.12.1"},
            ("TensorFlow 2.21.0, Python 3.11.9", "TensorFlow 2.22.0, Python 3.12.1"),
        ),
    ],
)
def test_sides_are_labeled_by_differences(new: dict[str, str], labels: tuple[str, str]):
    (found,) = paired.series(measured(turns(1.0, pairs=2, **new)))
    assert (found.labels["base"], found.labels["new"]) == labels


def test_unpaired_turns_are_rejected():
    whole = list(turns(1.0, pairs=2))
    with pytest.raises(BadInput, match="the turns of base and new are not paired"):
        paired.series(measured(whole[1:]))


def test_noisy_pairs_are_counted():
    restless = [row("paired_foreign_share", 0.3, repeat=1), row("paired_steal_share", 0.1)]
    calm = [row("paired_foreign_share", 0.01, repeat=3)]
    (found,) = paired.series(measured(turns(1.0, pairs=4), restless, calm))
    assert found.noisy == 2


def test_paired_table_has_line_per_comparison():
    found = paired.series(measured(turns(1.05)))
    (line,) = paired.table(found, paired.answers_of(found)).rows
    assert line.group == "single_process · tf_keras 2.21.0, 1 worker: identical"
    assert line.cells[:4] == ("12", MISSING, "budget", "11.1 → 11.6")
    assert line.cells[5:] == ("regression", "6.00", "0")
    (one,) = paired.series(measured(turns(1.05, tensorflow="2.22.0")))
    assert paired.heading(one).endswith("1 worker: TensorFlow 2.21.0 → TensorFlow 2.22.0")
    assert paired.series(measured([])) == []
