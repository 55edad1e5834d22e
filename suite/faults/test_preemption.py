"""Preemption: on SIGTERM all workers save at the same step, exit, and resume from it."""

import pytest

from suite.harness.checks import restart
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import crashes, small_programs


@pytest.mark.claim("mwms/preemption", "mwms/backup-preemption")
@pytest.mark.cases(families=("mwms", "custom-mirrored"), flavors="first")
@scenario(crashes.preempted)
def test_preemption_saves_and_resumes(outcome, record):
    restart.leaves_after_saving(outcome.run)
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)
    record("preempted_left_s", recovery.left_s(outcome.run), "s", "lower", fault="sigterm")


@pytest.mark.claim("mwms/backup-preemption")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.preempted_where_keras_heeds_it)
def test_fit_saves_on_sigterm_where_keras_handles_it(outcome):
    restart.leaves_after_saving(outcome.run)
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)
