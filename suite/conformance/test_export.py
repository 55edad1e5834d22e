"""Export: every worker's saved model is the same, and one process can use it."""

import pytest

from suite.harness import checks, probes


@pytest.mark.claim("mwms/saved-model-same")
@pytest.mark.cases(distributed=True, synchronous=True, events=("exported",))
def test_saved_models_are_identical(healthy):
    checks.exports_identical(healthy)


@pytest.fixture
def loaded(scenario, healthy):
    """What a process of its own makes of what the healthy run has saved."""

    def loaded_export(launch):
        return probes.loaded_export(launch, healthy)

    return scenario(loaded_export)


@pytest.mark.claim("mwms/saved-model-same", "mirrored/saved-model")
@pytest.mark.cases(families=("mwms", "mirrored"), events=("exported",))
def test_the_saved_model_loads_in_one_process(loaded):
    checks.loaded_export_evaluates_same(loaded.run, loaded.then)
    checks.training_goes_on(loaded.run, loaded.then)


@pytest.mark.claim("mirrored/saved-model")
@pytest.mark.cases(families=("mirrored",), events=("exported",))
def test_the_saved_model_loads_in_the_scope_of_a_strategy(loaded):
    checks.export_in_scope_evaluates_same(loaded.run, loaded.then)


@pytest.mark.claim("mirrored/latest-restores")
@pytest.mark.cases(families=("mirrored",), events=("exported", "checkpoint_saved"))
def test_the_latest_checkpoint_evaluates_as_the_model_did(loaded):
    checks.latest_checkpoint_evaluates_same(loaded.run, loaded.then)


@pytest.mark.claim("dtensor/saved-model")
@pytest.mark.cases(families=("dtensor",))
def test_the_saved_signature_takes_ordinary_tensors(healthy, launch):
    pair = probes.loaded_signature(launch, healthy)
    checks.exports_identical(healthy)
    checks.loaded_export_evaluates_same(pair.run, pair.then)


@pytest.mark.claim("dtensor/saved-model")
@pytest.mark.cases(families=("dtensor",))
def test_a_model_in_shards_is_not_exported(remeshed):
    checks.sharded_export_refused(remeshed.sharded)


@pytest.mark.claim("dtensor/reload-replicated")
@pytest.mark.cases(families=("dtensor",))
def test_a_model_in_shards_exports_once_it_is_reloaded_replicated(remeshed, launch):
    checks.checkpoint_restores(remeshed.sharded, remeshed.smaller)
    checks.checkpoint_restores(remeshed.smaller, remeshed.larger)
    checks.exports_identical(remeshed.larger)
    pair = probes.loaded_signature(launch, remeshed.larger)
    checks.loaded_export_evaluates_same(pair.run, pair.then)
