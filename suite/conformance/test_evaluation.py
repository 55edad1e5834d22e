"""Evaluation: during training, over all workers, and in a separate task next to the cluster."""

import pytest

from suite.harness.checks import agreement, checkpoints, evaluation, program_results, startup
from suite.harness.core.errors import NotExamined
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


def _validates(run):
    names = {name for e in run.of("epoch") for name in e["metrics"]}
    return any(name.startswith(agreement.VALIDATION) for name in names)


@pytest.mark.claim("mwms/validation")
@pytest.mark.cases(
    distributed=True, synchronous=True, flags=("evaluate",), events=("epoch",), level="observed"
)
def test_workers_agree_on_validation(healthy):
    if healthy.trainer.of_user and not _validates(healthy):
        raise NotExamined("its epochs have no metrics of validation")
    agreement.validation_agrees(healthy)


@pytest.mark.claim("evaluation/whole-test-set")
@pytest.mark.cases(flags=("evaluate", "dump-weights"), events=("evaluated", "weights"))
def test_evaluation_covers_the_test_set(healthy):
    evaluation.evaluates_the_test_set(healthy)


@pytest.mark.claim("evaluation/whole-test-set")
@pytest.mark.cases(families=("estimator",))
@scenario(fault_free.alone)
def test_evaluation_of_an_estimator_covers_the_test_set(outcome):
    evaluation.evaluates_the_test_set(outcome)


@pytest.mark.claim("evaluation/last-validation")
@pytest.mark.cases(flags=("evaluate",), events=("evaluated", "epoch"), level="observed")
def test_evaluation_equals_the_last_validation(healthy):
    if healthy.trainer.of_user and not (healthy.of("evaluated") and _validates(healthy)):
        raise NotExamined("its epochs have no metrics of validation, or it does not evaluate")
    evaluation.evaluates_as_last_validated(healthy)


@pytest.mark.claim("ps2/evaluation")
@pytest.mark.cases(families=("ps2",), flags=("evaluate",))
@scenario(small_programs.side_evaluator)
def test_workers_evaluate_like_single_process(outcome):
    program_results.side_evaluator_agrees(outcome.run, outcome.reference)


@pytest.mark.claim("mwms/side-evaluator")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.side_evaluator)
def test_separate_task_evaluates_cluster_checkpoints(outcome):
    program_results.side_evaluator_agrees(outcome.run, outcome.reference)


@pytest.mark.claim("mwms/side-evaluator")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.sidecar_evaluator)
def test_the_evaluator_of_keras_follows_the_checkpoints(outcome):
    program_results.side_evaluator_agrees(outcome.run, outcome.reference)


@pytest.mark.claim("estimator/train-and-evaluate", "cluster/chief", "cluster/tf-config")
@pytest.mark.cases(families=("estimator",))
@scenario(fault_free.followed)
def test_evaluator_follows_chief_checkpoints(outcome):
    startup.cluster_as_given(outcome)
    startup.one_chief(outcome)
    agreement.workers_agree_on_weights(outcome)
    checkpoints.evaluates_the_latest(outcome)


@pytest.mark.claim("estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
@scenario(fault_free.alone)
def test_one_process_evaluates_its_latest_checkpoint(outcome):
    checkpoints.evaluates_the_latest(outcome)


@pytest.mark.claim("estimator/predict", "estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
@scenario(small_programs.estimator_predictions)
def test_predictions_and_distributed_evaluation_agree(outcome):
    program_results.predictions_agree(outcome)


@pytest.mark.claim("estimator/predict")
@pytest.mark.cases(families=("estimator",))
@scenario(small_programs.estimator_predictions)
def test_the_documents_specification_cannot_predict(outcome):
    program_results.mode_is_required(outcome)
