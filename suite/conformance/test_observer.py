"""The observer: a program, watched from outside, has the history that it reports."""

import pytest

from suite.harness.checks import observed_history
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import observed

# A program of the suite trains as they do, and reports by itself.
REPORTED = ("single", "mirrored", "custom-mirrored", "mwms", "dtensor")


@pytest.mark.cases(families=REPORTED, events=("weights", "checkpoint_saved"))
@scenario(observed.healthy)
def test_observed_history_equals_reported_one(outcome):
    run, reference = outcome.run, outcome.reference
    observed_history.observed_cluster_equal(run, reference)
    observed_history.observed_steps_equal(run, reference)
    observed_history.observed_saves_equal(run, reference)
    observed_history.observed_weights_equal(run, reference)
    observed_history.observed_end_equals(run, reference)


@pytest.mark.cases(families=REPORTED, fit=True)
@scenario(observed.healthy)
def test_observed_epochs_equal_reported_ones(outcome):
    observed_history.observed_epochs_equal(outcome.run, outcome.reference)


@pytest.mark.cases(families=REPORTED, events=("restored",))
@scenario(observed.continued)
def test_observed_restores_equal_reported_ones(outcome):
    observed_history.observed_restores_equal(outcome.run, outcome.reference)
    observed_history.observed_steps_equal(outcome.run, outcome.reference)


@pytest.mark.cases(families=("dtensor",))
@scenario(observed.healthy, observed.continued)
def test_observed_slots_equal_reported_ones(outcome):
    observed_history.observed_slots_equal(outcome.run, outcome.reference)
