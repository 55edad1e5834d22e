"""Convergence: the loss falls, the accuracy rises, and several replicas converge like one."""

import pytest

from suite.harness.checks import accounting, agreement, convergence
from suite.harness.checks.assertions import reported
from suite.harness.core.errors import NotExamined
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("training/mean-loss")
@pytest.mark.cases(fit=False, events=("step", "epoch"))
def test_loss_of_an_epoch_is_the_mean_of_its_steps(healthy):
    accounting.epoch_loss_is_that_of_its_steps(healthy)


@pytest.mark.claim(
    "mwms/converges",
    "mirrored/converges",
    "single/converges",
    "dtensor/converges",
    "training/learns",
)
@pytest.mark.cases(events=("epoch",), controls=("epochs",))
def test_loss_falls_epoch_by_epoch(healthy, record):
    if healthy.trainer.synchronous and healthy.trainer.deterministic:
        # Two versions, or two commits of a program, can be compared by it.
        record("training_loss", convergence.metric_by_epoch(healthy, "loss")[-1], "1")
    convergence.loss_falls(healthy)


@pytest.mark.claim(
    "mwms/converges",
    "mirrored/converges",
    "single/converges",
    "dtensor/converges",
    "training/learns",
)
@pytest.mark.cases(events=("epoch",), controls=("epochs",))
def test_accuracy_rises_epoch_by_epoch(healthy):
    if healthy.trainer.of_user and not convergence.metric_by_epoch(healthy, "accuracy"):
        raise NotExamined("its epochs have no metric `accuracy`")
    convergence.accuracy_rises(healthy)


@pytest.mark.claim(
    "mwms/converges",
    "mirrored/converges",
    "single/converges",
    "dtensor/converges",
    "ps1/asynchronous",
    "ps1/synchronous",
    "training/learns",
)
@pytest.mark.cases(events=("step",), controls=("length",))
def test_losses_of_steps_fall(healthy):
    reported(healthy, "step", "loss")
    convergence.step_losses_fall(healthy)


@pytest.mark.cases(of_user=True, level="observed", controls=("length",))
def test_losses_in_summaries_fall(healthy):
    if len(convergence.losses_in_summaries(healthy)) < 2:
        raise NotExamined("it writes no two training losses with tf.summary.scalar")
    convergence.losses_in_summaries_fall(healthy)


@pytest.mark.claim("mwms/converges", "mirrored/converges", "dtensor/converges")
@pytest.mark.cases(several=True, synchronous=True, events=("epoch",))
@scenario(fault_free.with_baseline)
def test_converges_like_single_process(outcome):
    convergence.converges_to_baseline(outcome.run, outcome.reference)


@pytest.mark.claim("estimator/from-keras")
@pytest.mark.cases(families=("estimator",))
@scenario(small_programs.estimator_from_keras)
def test_an_estimator_made_of_a_keras_model_trains(outcome):
    accounting.finishes_requested_steps(outcome)
    accounting.steps_accounted(outcome)
    agreement.workers_agree_on_weights(outcome)
    convergence.step_losses_fall(outcome)
