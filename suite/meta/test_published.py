"""The range of published figures: it holds what the documents print, and not much more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite.published import METRICS, Draw, draws, figures, outside, predicted, seen

FIGURES = figures()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_documents_figures_are_in_the_range_of_our_seeds(figure):
    ours = list(seen(figure.trainer, draws()))
    assert len(ours) == len(METRICS) * figure.epochs
    assert outside(figure, ours) == []


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
@pytest.mark.parametrize(
    ("loss", "accuracy"),
    [
        pytest.param([2.3026] * 3, [0.1] * 3, id="learns-nothing"),
        pytest.param([1.8, 0.8, 0.5], [0.55, 0.83, 0.87], id="learns-ten-times-as-fast"),
    ],
)
def test_too_good_is_as_wrong_as_too_bad(figure, loss, accuracy):
    wrong = replace(figure, loss=loss, accuracy=accuracy)
    assert outside(wrong, predicted(figure.trainer, draws()))


def test_a_range_is_students_prediction_interval():
    own = [Draw("t", "k", "2", seed, 1, loss, 10 * loss) for seed, loss in enumerate((1, 2, 3))]
    # t of 0.995 with 2 degrees of freedom, times a spread of 1, times sqrt(4/3)
    wide = 9.92484 * (4 / 3) ** 0.5
    loss, accuracy = predicted("t", own)
    assert (loss.metric, loss.epoch) == ("loss", 1)
    assert (loss.low, loss.high) == pytest.approx((2 - wide, 2 + wide), rel=1e-4)
    assert (accuracy.low, accuracy.high) == pytest.approx((20 - 10 * wide, 20 + 10 * wide), 1e-4)


def test_too_few_seeds_give_no_range():
    with pytest.raises(ValueError, match="t: 1 seeds are too few"):
        list(predicted("t", [Draw("t", "k", "2", 1, 1, 2.0, 0.5)]))
