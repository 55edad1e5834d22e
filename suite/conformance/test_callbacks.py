"""Callbacks: the output of the document's callbacks, with several replicas as with one."""

import pytest

from suite.harness.checks import callbacks, checkpoints
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@scenario(fault_free.scheduled)
def test_the_learning_rate_follows_its_schedule(outcome):
    callbacks.learning_rate_follows_schedule(outcome)


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@scenario(fault_free.scheduled)
def test_every_epoch_has_its_checkpoint(outcome):
    checkpoints.every_epoch_is_saved(outcome)


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@scenario(small_programs.event_files)
def test_event_files_hold_what_was_reported(outcome):
    callbacks.event_files_hold_the_metrics(outcome.run, outcome.then)
