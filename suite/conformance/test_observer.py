"""The observer: each reference trainer, watched from outside, has the history that it reports."""

import pytest

from suite.harness.checks import (
    accounting,
    observed_history,
    supervisor,
)
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import observed


@pytest.mark.cases(synchronous=True, events=("weights", "checkpoint_saved"))
@scenario(observed.healthy)
def test_observed_history_equals_reported_one(outcome):
    run, reference = outcome.run, outcome.reference
    observed_history.observed_cluster_equal(run, reference)
    observed_history.observed_steps_equal(run, reference)
    observed_history.observed_saves_equal(run, reference)
    observed_history.observed_weights_equal(run, reference)
    observed_history.observed_end_equals(run, reference)


@pytest.mark.cases(synchronous=True, fit=True)
@scenario(observed.healthy)
def test_observed_epochs_equal_reported_ones(outcome):
    observed_history.observed_epochs_equal(outcome.run, outcome.reference)


@pytest.mark.cases(synchronous=True, events=("restored",))
@scenario(observed.continued)
def test_observed_restores_equal_reported_ones(outcome):
    observed_history.observed_restores_equal(outcome.run, outcome.reference)
    observed_history.observed_steps_equal(outcome.run, outcome.reference)


# Asynchronous runs differ from each other. The observed history must be consistent in itself. Of
# plain trainers all tests examine such a history.


@pytest.mark.cases(synchronous=False, plain=False)
@scenario(observed.healthy)
def test_observed_asynchronous_run_reaches_its_end(outcome):
    observed_history.observed_cluster_equal(outcome.run, outcome.reference)
    accounting.finishes_requested_steps(outcome.run)


@pytest.mark.cases(synchronous=False, plain=False, events=("step",))
@scenario(observed.healthy)
def test_observed_asynchronous_steps_are_accounted(outcome):
    accounting.steps_accounted(outcome.run)


@pytest.mark.cases(families=("ps1",))
@scenario(observed.healthy)
def test_observed_supervisor_saves_and_stops(outcome):
    supervisor.supervisor_saves(outcome.run)
    supervisor.stops_at_the_limit(outcome.run)


@pytest.mark.cases(families=("ps1",), aggregates=False)
@scenario(observed.healthy)
def test_observed_global_step_counts_all(outcome):
    supervisor.global_step_counts_all(outcome.run)


@pytest.mark.cases(families=("ps1",), aggregates=True)
@scenario(observed.healthy)
def test_observed_aggregates_are_accounted(outcome):
    supervisor.aggregates_accounted(outcome.run)
