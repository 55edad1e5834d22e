"""Published figures: what the documents print is what our own runs print, give or take the seed."""

import pytest

from suite import published
from suite.harness.cases import plays


@pytest.mark.claim("mwms/converges", "single/converges")
@pytest.mark.cases(families=("mwms", "single"), events=("epoch",), fit=True)
@plays(published.reproduced)
def test_the_documents_figures_are_drawn_from_where_ours_are(case, played):
    name = case.trainer.name
    figures = published.of_trainer(name)
    ours = tuple(published.seen(name, published.draws()))
    assert [published.outside(figure, ours) for figure in figures] == [[]] * len(figures)
    one_more = published.as_figure(played, figures[0])
    assert published.outside(one_more, published.predicted(name, published.draws())) == []
