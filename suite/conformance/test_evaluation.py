"""Evaluation: during training, over all workers, and beside the cluster."""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("mwms/validation")
@pytest.mark.cases(distributed=True, synchronous=True, flags=("evaluate",))
def test_workers_agree_on_validation(healthy):
    checks.validation_agrees(healthy)


@pytest.mark.claim("ps2/evaluation")
@pytest.mark.cases(families=("ps2",), flags=("evaluate",))
def test_workers_beside_servers_evaluate_as_one_process_does(scenario):
    pair = scenario(probes.side_evaluator)
    checks.side_evaluator_agrees(pair.run, pair.reference)


@pytest.mark.claim("mwms/side-evaluator")
@pytest.mark.cases(families=("mwms",), fit=True)
def test_a_task_beside_the_cluster_evaluates_its_checkpoints(scenario):
    pair = scenario(probes.side_evaluator)
    checks.side_evaluator_agrees(pair.run, pair.reference)


@pytest.mark.claim("estimator/train-and-evaluate", "cluster/chief", "cluster/tf-config")
@pytest.mark.cases(families=("estimator",))
def test_an_evaluator_follows_the_checkpoints_of_chief_and_workers(scenario):
    run = scenario(scenarios.followed)
    checks.cluster_as_given(run)
    checks.one_chief(run)
    checks.workers_agree_on_weights(run)
    checks.evaluates_the_latest(run)


@pytest.mark.claim("estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
def test_one_process_evaluates_its_latest_checkpoint(scenario):
    checks.evaluates_the_latest(scenario(scenarios.alone))


@pytest.mark.claim("estimator/predict", "estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
def test_predictions_and_distributed_evaluation_agree(scenario):
    checks.predictions_agree(scenario(probes.estimator_predictions))


@pytest.mark.claim("estimator/predict")
@pytest.mark.cases(families=("estimator",))
def test_the_documents_specification_cannot_predict(scenario):
    checks.mode_is_required(scenario(probes.estimator_predictions))
