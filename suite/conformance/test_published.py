"""Published figures: the documents' figures match the suite's own runs, up to the seed."""

import pytest

from suite import published
from suite.harness.pytest_plugin.parametrization import scenario


def in_range(drawn, record):
    """Check one own run and all figures of its setup against the range of the own seeds."""
    setup, own = drawn.setup.name, drawn.setup.read(drawn.run)
    allowed = list(published.predicted(setup, published.draws()))
    printed = {figure.name: figure.values for figure in published.of_setup(setup)}
    for name, values in (printed or {setup: {}}).items():
        for r in allowed:
            row = {"variant": f"{name}: {r.quantity}"}
            record("published_low", r.low, "1", **row)
            record("published_high", r.high, "1", **row)
            record("published_ours", own[r.quantity], "1", **row)
            if r.quantity in values:
                record("published_document", values[r.quantity], "1", **row)
    missing = sorted(own.keys() ^ {r.quantity for r in allowed})
    wrong = {
        name: found
        for name, values in {"ours": own, **printed}.items()
        if (found := published.outside(values, allowed))
    }
    assert (missing, wrong) == ([], {})


@pytest.mark.claim(
    "mwms/converges",
    "single/converges",
    "dtensor/converges",
    "estimator/train-and-evaluate",
)
@pytest.mark.cases(events=("epoch",))
@scenario(*(published.scene(setup) for setup in published.SETUPS if not setup.long))
def test_published_figures_within_prediction_interval(outcome, record):
    in_range(outcome, record)


@pytest.mark.claim("mirrored/converges")
@pytest.mark.cases(events=("epoch",))
@scenario(*(published.scene(setup) for setup in published.SETUPS if setup.long))
@pytest.mark.long
def test_long_published_figures_within_prediction_interval(outcome, record):
    in_range(outcome, record)
