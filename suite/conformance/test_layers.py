"""Layers that train differently on several replicas: batch normalization and dropout."""

import pytest

from suite.harness.checks import checkpoints, replica_state
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free


@pytest.mark.claim("normalization/own-batch", "normalization/in-evaluation")
@pytest.mark.cases(several=True, flags=("model", "optimizer", "dump-weights"), synchronous=True)
@scenario(fault_free.normalized)
def test_replicas_normalize_their_own_batches(outcome):
    replica_state.normalizes_own_batches(outcome.run, outcome.reference)


@pytest.mark.claim("normalization/synchronized")
@pytest.mark.cases(several=True, flags=("model", "optimizer", "dump-weights"), synchronous=True)
@scenario(fault_free.synchronized)
def test_synchronized_normalization_equals_one_process(outcome):
    replica_state.normalizes_the_whole_batch(outcome.run, outcome.reference)


@pytest.mark.claim("normalization/in-evaluation")
@pytest.mark.cases(several=True, flags=("model", "optimizer", "dump-weights"), synchronous=True)
@scenario(fault_free.normalized)
def test_evaluation_uses_the_moving_statistics(outcome):
    replica_state.evaluates_with_moving_statistics(outcome.run)


@pytest.mark.claim("normalization/in-evaluation")
@pytest.mark.cases(flags=("model", "evaluate", "dump-weights"), families=("ps2",))
@scenario(fault_free.normalized_on_servers)
def test_evaluation_on_workers_uses_the_moving_statistics(outcome):
    replica_state.evaluates_with_moving_statistics(outcome)


@pytest.mark.claim("normalization/saved-mean")
@pytest.mark.cases(several=True, flags=("model", "optimizer", "dump-weights"), synchronous=True)
@scenario(fault_free.normalized)
def test_a_checkpoint_has_the_mean_statistics(outcome):
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    replica_state.restores_mean_statistics(outcome.run, outcome.then)


@pytest.mark.claim("normalization/saved-mean")
@pytest.mark.cases(
    several=True, flags=("model", "dump-weights"), events=("exported",), synchronous=True
)
@scenario(fault_free.normalized)
def test_an_export_has_the_mean_statistics(outcome):
    replica_state.exports_mean_statistics(outcome.run)


@pytest.mark.claim("dropout/in-training")
@pytest.mark.cases(several=True, flags=("model", "dump-weights"), synchronous=True)
@scenario(fault_free.dropped)
def test_each_step_drops_other_units(outcome):
    replica_state.draws_masks(outcome)


@pytest.mark.claim("dropout/own-mask")
@pytest.mark.cases(several=True, flags=("model", "dump-weights"), synchronous=True)
@scenario(fault_free.dropped)
def test_each_replica_drops_units_of_its_own(outcome):
    replica_state.draws_own_masks(outcome)
