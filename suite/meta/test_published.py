"""Tests that the range of published figures holds the documents' figures and little more."""

from __future__ import annotations

import pytest

from suite.harness.metrics.published_ranges import (
    Draw,
    draws,
    figures,
    observed_ranges,
    of_setup,
    outside,
    prediction_intervals,
)
from suite.harness.scenarios.published_runs import BY_SETUP
from suite.published import write

FIGURES = figures()
NOTHING, TEN_TIMES = (2.3026, 0.1), (0.5, 0.87)  # (loss, accuracy)
SHORT = ("single", "two-workers")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_documents_figures_are_in_the_range_of_our_seeds(figure):
    allowed = list(prediction_intervals(figure.setup, draws()))
    assert set(figure.values) <= {r.quantity for r in allowed}
    assert outside(figure.values, allowed) == []


def test_no_figure_has_the_name_of_another_set_up():
    """A set-up without a published figure has its own name in the report."""
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert [f.name for f in FIGURES if f.name in BY_SETUP and f.name != f.setup] == []


@pytest.mark.parametrize("setup", SHORT)
def test_figures_of_a_few_epochs_lie_within_our_range(setup):
    for figure in of_setup(setup):
        assert outside(figure.values, observed_ranges(setup, draws())) == []


@pytest.mark.parametrize("setup", SHORT)
@pytest.mark.parametrize("learnt", [NOTHING, TEN_TIMES], ids=["nothing", "ten-times-as-fast"])
def test_too_good_is_as_wrong_as_too_bad(setup, learnt):
    allowed = list(prediction_intervals(setup, draws()))
    wrong = {r.quantity: learnt["accuracy" in r.quantity] for r in allowed}
    assert len(outside(wrong, allowed)) >= 4  # the first epoch's values are near the start


@pytest.mark.parametrize("setup", BY_SETUP)
def test_every_quantity_has_two_ends(setup):
    for r in prediction_intervals(setup, draws()):
        wide = r.high - r.low
        assert wide > 0
        for value in (r.low - wide / 100, r.high + wide / 100):
            assert len(outside({r.quantity: value}, [r])) == 1
        assert outside({r.quantity: (r.low + r.high) / 2}, [r]) == []


def drawn(*values: float) -> list[Draw]:
    return [Draw("single", "k", "2", seed, "loss", value) for seed, value in enumerate(values)]


def test_a_range_is_students_prediction_interval():
    # t of 0.995 with 2 degrees of freedom, times a spread of 1, times sqrt(4/3)
    wide = 9.92484 * (4 / 3) ** 0.5
    (loss,) = prediction_intervals("single", drawn(1, 2, 3))
    assert loss.quantity == "loss"
    assert (loss.low, loss.high) == pytest.approx((2 - wide, 2 + wide), rel=1e-4)


def test_too_few_seeds_give_no_range():
    with pytest.raises(ValueError, match="single: 1 seeds are too few"):
        list(prediction_intervals("single", drawn(2.0)))


def test_a_campaign_replaces_its_own_set_ups_and_keeps_the_others(tmp_path):
    path = tmp_path / "seeds.csv"
    old = [*drawn(1.0, 2.0), Draw("estimator", "k", "2", 1, "loss", 2.3)]
    write(path, old)
    assert list(draws(path)) == old
    write(path, drawn(3.0))
    assert list(draws(path)) == [*drawn(3.0), old[-1]]
