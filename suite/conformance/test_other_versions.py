"""Files of other versions: what one TensorFlow and Keras saved, loaded with another.

Run with --artifacts DIR once with each version, and then again: the first run saves, the second
loads what the others saved.
"""

import pytest

from suite.harness.checks import checkpoints
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import other_versions


@pytest.mark.claim("versions/checkpoint")
@pytest.mark.cases(events=("checkpoint_saved",), of_user=False)
@scenario(other_versions.saved)
@pytest.mark.artifacts
def test_each_format_is_saved(outcome):
    checkpoints.saves_each_format(outcome.run, outcome.formats)


@pytest.mark.claim("versions/checkpoint")
@pytest.mark.cases(events=("checkpoint_saved",), of_user=False)
@scenario(other_versions.restored)
@pytest.mark.artifacts
def test_a_checkpoint_of_another_version_restores(outcome):
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    checkpoints.training_continues(outcome.run, outcome.then)


@pytest.mark.claim("versions/saved-model")
@pytest.mark.cases(events=("exported",), of_user=False)
@scenario(other_versions.evaluated)
@pytest.mark.artifacts
def test_a_saved_model_of_another_version_evaluates_same(outcome):
    checkpoints.loaded_export_evaluates_same(outcome.run, outcome.then)


@pytest.mark.claim("versions/keras-file")
@pytest.mark.cases(events=("exported",), families=("single", "mwms", "mirrored"), of_user=False)
@scenario(other_versions.loaded)
@pytest.mark.artifacts
def test_a_keras_file_of_another_version_trains_on(outcome):
    checkpoints.loaded_export_evaluates_same(outcome.run, outcome.then)
    checkpoints.training_continues(outcome.run, outcome.then)
