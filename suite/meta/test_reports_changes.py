"""Tests that a lasting change of a series is reported, and that noise alone seldom is."""

from __future__ import annotations

import numpy as np
import pytest

from reports.stats import changepoints

SERIES = 200  # simulated series of each kind


def simulated(runs: int, noise: float, step: float = 0, place: int = 0) -> list[list[float]]:
    """Return series of log-normal noise around 100, times 1 + step from index `place` on."""
    draw = np.random.default_rng(20260102).normal(0, noise, (SERIES, runs))
    draw[:, place:] += np.log1p(step)
    return (100 * np.exp(draw)).tolist()


def share_with_a_change(series: list[list[float]]) -> float:
    return sum(bool(changepoints.find(values)) for values in series) / len(series)


@pytest.mark.parametrize("runs", [6, 10, 30, 100])
def test_change_points_are_rare_in_noise(runs: int):
    assert share_with_a_change(simulated(runs, 0.03)) <= changepoints.ALPHA


@pytest.mark.parametrize("runs", [6, 10, 30, 100])
def test_change_points_are_rare_over_all_series_of_noise(runs: int):
    series = simulated(runs, 0.03)
    assert not [values for values in series if changepoints.find(values, len(series))]


def test_lasting_step_is_detected_among_many_series():
    series = simulated(30, 0.03, 0.1, 15)
    found = [changepoints.find(values, len(series)) for values in series]
    assert sum(map(bool, found)) >= 0.9 * SERIES


@pytest.mark.parametrize("place", [0, 15, 28, 29])
def test_outlier_is_no_change(place: int):
    series = simulated(30, 0.03)
    for values in series:
        values[place] *= 1.6
    assert share_with_a_change(series) <= changepoints.ALPHA


def test_outlier_hides_no_change():
    series = simulated(20, 0.02, 0.1, 10)
    for values in series:
        values[4] *= 1.6
    assert share_with_a_change(series) >= 0.98


def test_lasting_step_is_located():
    found = [changepoints.find(values) for values in simulated(20, 0.03, 0.1, 10)]
    near = [len(each) == 1 and abs(each[0].place - 10) <= 2 for each in found]
    assert sum(map(bool, found)) >= 0.98 * SERIES
    assert sum(near) >= 0.95 * SERIES


def test_step_down_is_detected_like_step_up():
    assert share_with_a_change(simulated(20, 0.03, 1 / 1.1 - 1, 10)) >= 0.98


def test_change_has_medians_of_its_levels():
    values = [*[10, 11, 12] * 4, *[20, 21, 23] * 4, *[41, 42, 40] * 4]
    first, second = changepoints.find(values)
    assert (first.place, first.before, first.after) == (12, 11, 21)
    assert (second.place, second.before, second.after) == (24, 21, 41)
    assert first.ratio == 21 / 11


@pytest.mark.parametrize(("step", "is_reported"), [(0.015, False), (0.025, True)])
def test_change_below_floor_is_not_reported(step: float, is_reported: bool):
    assert share_with_a_change(simulated(20, 0.0005, step, 10)) == is_reported


def test_small_changes_merge_to_one_above_floor():
    values = [*[100, 100.1] * 5, *[101.5, 101.6] * 5, *[103, 103.1] * 5]
    (change,) = changepoints.find(values)
    assert change.ratio > 1 + changepoints.FLOOR


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [1, 1, 1, 9, 9], [0, 0, 0, 0, 5, 5, 5, 5], [7.0] * 20],
    ids=["none", "one", "too few", "no logarithm", "all the same"],
)
def test_change_points_are_empty_for_unusable_values(values: list[float]):
    assert changepoints.find(values) == []
