"""Evaluation: during training, over all workers, and beside the cluster."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/validation")
@pytest.mark.cases(distributed=True, synchronous=True, flags=("evaluate",))
def test_workers_agree_on_validation(healthy):
    checks.validation_agrees(healthy)


@pytest.mark.claim("ps2/evaluation")
@pytest.mark.cases(families=("ps2",), flags=("evaluate",))
@plays(small_programs.side_evaluator)
def test_workers_beside_servers_evaluate_as_one_process_does(played):
    checks.side_evaluator_agrees(played.run, played.reference)


@pytest.mark.claim("mwms/side-evaluator")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.side_evaluator)
def test_a_task_beside_the_cluster_evaluates_its_checkpoints(played):
    checks.side_evaluator_agrees(played.run, played.reference)


@pytest.mark.claim("mwms/side-evaluator")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.sidecar_evaluator)
def test_the_evaluator_of_keras_follows_the_checkpoints(played):
    checks.side_evaluator_agrees(played.run, played.reference)


@pytest.mark.claim("estimator/train-and-evaluate", "cluster/chief", "cluster/tf-config")
@pytest.mark.cases(families=("estimator",))
@plays(fault_free.followed)
def test_an_evaluator_follows_the_checkpoints_of_chief_and_workers(played):
    checks.cluster_as_given(played)
    checks.one_chief(played)
    checks.workers_agree_on_weights(played)
    checks.evaluates_the_latest(played)


@pytest.mark.claim("estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
@plays(fault_free.alone)
def test_one_process_evaluates_its_latest_checkpoint(played):
    checks.evaluates_the_latest(played)


@pytest.mark.claim("estimator/predict", "estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
@plays(small_programs.estimator_predictions)
def test_predictions_and_distributed_evaluation_agree(played):
    checks.predictions_agree(played)


@pytest.mark.claim("estimator/predict")
@pytest.mark.cases(families=("estimator",))
@plays(small_programs.estimator_predictions)
def test_the_documents_specification_cannot_predict(played):
    checks.mode_is_required(played)
