"""Export: every worker's saved model is the same, and one process can use it."""

import pytest

from suite.harness.checks import checkpoints, dtensor_layouts
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import small_programs


@pytest.mark.claim("mwms/saved-model-same")
@pytest.mark.cases(distributed=True, synchronous=True, events=("exported",))
def test_saved_models_are_identical(healthy):
    checkpoints.exports_identical(healthy)


@pytest.mark.claim("mwms/saved-model-same", "mirrored/saved-model")
@pytest.mark.cases(families=("mwms", "mirrored"), events=("exported",))
@scenario(small_programs.loaded_export)
def test_the_saved_model_loads_in_one_process(outcome):
    checkpoints.loaded_export_evaluates_same(outcome.run, outcome.then)
    checkpoints.training_continues(outcome.run, outcome.then)


@pytest.mark.claim("mirrored/saved-model")
@pytest.mark.cases(families=("mirrored",), events=("exported",))
@scenario(small_programs.loaded_export)
def test_the_saved_model_loads_in_the_scope_of_a_strategy(outcome):
    checkpoints.export_in_scope_evaluates_same(outcome.run, outcome.then)


@pytest.mark.claim("mirrored/latest-restores")
@pytest.mark.cases(families=("mirrored",), events=("exported", "checkpoint_saved"))
@scenario(small_programs.loaded_export)
def test_the_latest_checkpoint_evaluates_as_the_model_did(outcome):
    checkpoints.latest_checkpoint_evaluates_same(outcome.run, outcome.then)


@pytest.mark.claim("dtensor/saved-model")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.loaded_signature)
def test_the_saved_signature_takes_ordinary_tensors(outcome):
    checkpoints.exports_identical(outcome.run)
    checkpoints.loaded_export_evaluates_same(outcome.run, outcome.then)


@pytest.mark.claim("dtensor/saved-model")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.remeshed)
def test_a_model_in_shards_is_not_exported(outcome):
    dtensor_layouts.sharded_export_refused(outcome.sharded)


@pytest.mark.claim("dtensor/reload-replicated")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.loaded_remeshed_signature)
def test_sharded_model_exports_after_replicated_reload(outcome):
    checkpoints.exports_identical(outcome.run)
    checkpoints.loaded_export_evaluates_same(outcome.run, outcome.then)
