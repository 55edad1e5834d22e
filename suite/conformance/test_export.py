"""Export: every worker's saved model is the same, and one process can use it."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import small_programs


@pytest.mark.claim("mwms/saved-model-same")
@pytest.mark.cases(distributed=True, synchronous=True, events=("exported",))
def test_saved_models_are_identical(healthy):
    checks.exports_identical(healthy)


@pytest.mark.claim("mwms/saved-model-same", "mirrored/saved-model")
@pytest.mark.cases(families=("mwms", "mirrored"), events=("exported",))
@plays(small_programs.loaded_export)
def test_the_saved_model_loads_in_one_process(played):
    checks.loaded_export_evaluates_same(played.run, played.then)
    checks.training_goes_on(played.run, played.then)


@pytest.mark.claim("mirrored/saved-model")
@pytest.mark.cases(families=("mirrored",), events=("exported",))
@plays(small_programs.loaded_export)
def test_the_saved_model_loads_in_the_scope_of_a_strategy(played):
    checks.export_in_scope_evaluates_same(played.run, played.then)


@pytest.mark.claim("mirrored/latest-restores")
@pytest.mark.cases(families=("mirrored",), events=("exported", "checkpoint_saved"))
@plays(small_programs.loaded_export)
def test_the_latest_checkpoint_evaluates_as_the_model_did(played):
    checks.latest_checkpoint_evaluates_same(played.run, played.then)


@pytest.mark.claim("dtensor/saved-model")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.loaded_signature)
def test_the_saved_signature_takes_ordinary_tensors(played):
    checks.exports_identical(played.run)
    checks.loaded_export_evaluates_same(played.run, played.then)


@pytest.mark.claim("dtensor/saved-model")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.remeshed)
def test_a_model_in_shards_is_not_exported(played):
    checks.sharded_export_refused(played.sharded)


@pytest.mark.claim("dtensor/reload-replicated")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.loaded_remeshed_signature)
def test_a_model_in_shards_exports_once_it_is_reloaded_replicated(played):
    checks.exports_identical(played.run)
    checks.loaded_export_evaluates_same(played.run, played.then)
