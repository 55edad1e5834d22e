"""Evaluation: during training, over all workers, and beside the cluster."""

import pytest

from suite.harness import checks, probes


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
