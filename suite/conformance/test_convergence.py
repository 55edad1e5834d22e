"""Convergence: the loss falls, the accuracy rises, and several replicas get where one gets."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/converges", "mirrored/converges", "single/converges", "dtensor/converges")
@pytest.mark.cases(events=("epoch",))
def test_loss_falls_epoch_by_epoch(healthy):
    checks.loss_falls(healthy)


@pytest.mark.claim("mwms/converges", "mirrored/converges", "single/converges", "dtensor/converges")
@pytest.mark.cases(events=("epoch",))
def test_accuracy_rises_epoch_by_epoch(healthy):
    checks.accuracy_rises(healthy)


@pytest.mark.claim(
    "mwms/converges",
    "mirrored/converges",
    "single/converges",
    "dtensor/converges",
    "ps1/asynchronous",
    "ps1/synchronous",
)
@pytest.mark.cases(events=("step",))
def test_losses_of_steps_fall(healthy):
    checks.step_losses_fall(healthy)


@pytest.mark.claim("mwms/converges", "mirrored/converges", "dtensor/converges")
@pytest.mark.cases(several=True, synchronous=True, events=("epoch",))
@plays(fault_free.beside_baseline)
def test_several_replicas_get_where_one_gets(played):
    checks.converges_to_baseline(played.run, played.reference)


@pytest.mark.claim("estimator/from-keras")
@pytest.mark.cases(families=("estimator",))
@plays(small_programs.estimator_from_keras)
def test_an_estimator_made_of_a_keras_model_trains(played):
    checks.finished_as_asked(played)
    checks.steps_accounted(played)
    checks.workers_agree_on_weights(played)
    checks.step_losses_fall(played)
