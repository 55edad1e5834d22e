"""Published figures: what the documents print is what our own runs print, give or take the seed."""

import pytest

from suite import published

# Of none of the runs in published_seeds.csv, and always the same: this is one draw, not a lottery.
SEED = 1_000


@pytest.mark.claim("mwms/converges", "single/converges")
@pytest.mark.cases(families=("mwms", "single"), events=("epoch",), fit=True)
def test_the_documents_figures_are_drawn_from_where_ours_are(case, launch, dataset):
    published.need_real_mnist(dataset)
    name = case.trainer.name
    figures = published.of_trainer(name)
    ours = tuple(published.seen(name, published.draws()))
    assert [published.outside(figure, ours) for figure in figures] == [[]] * len(figures)
    run = published.reproduce(launch, figures[0], seed=SEED)
    one_more = published.as_figure(run, figures[0])
    assert published.outside(one_more, published.predicted(name, published.draws())) == []
