"""Published figures: the documents' figures match the suite's own runs, up to the seed."""

import pytest

from suite.harness.metrics import published_ranges
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import published_runs


def in_range(published, record):
    """Check one own run and all figures of its setup against the range of the own seeds."""
    setup, own = published.setup.name, published.setup.read(published.run)
    allowed = list(published_ranges.prediction_intervals(setup, published_ranges.draws()))
    printed = {figure.name: figure.values for figure in published_ranges.of_setup(setup)}
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
        if (found := published_ranges.outside(values, allowed))
    }
    assert (missing, wrong) == ([], {})


@pytest.mark.claim(
    "mwms/converges",
    "single/converges",
    "dtensor/converges",
    "estimator/train-and-evaluate",
    "training/learns",
)
@pytest.mark.cases(events=("epoch",))
@scenario(*(published_runs.scene(setup) for setup in published_runs.SETUPS if not setup.long))
def test_published_figures_within_prediction_interval(outcome, record):
    in_range(outcome, record)


@pytest.mark.claim("mirrored/converges", "training/learns")
@pytest.mark.cases(events=("epoch",))
@scenario(*(published_runs.scene(setup) for setup in published_runs.SETUPS if setup.long))
@pytest.mark.long
def test_long_published_figures_within_prediction_interval(outcome, record):
    in_range(outcome, record)
