"""Export: every worker's saved model is the same, and one process can use it."""

import pytest

from suite.harness import checks, probes


@pytest.mark.claim("mwms/saved-model-same")
@pytest.mark.cases(distributed=True, synchronous=True, events=("exported",))
def test_saved_models_are_identical(healthy):
    checks.exports_identical(healthy)


@pytest.mark.claim("mwms/saved-model-same")
@pytest.mark.cases(distributed=True, synchronous=True, events=("exported",))
def test_the_saved_model_loads_in_one_process(healthy, launch):
    pair = probes.loaded_export(launch, healthy)
    checks.loaded_export_evaluates_same(pair.run, pair.then)
    checks.training_goes_on(pair.run, pair.then)
