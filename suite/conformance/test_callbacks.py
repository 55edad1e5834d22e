"""Callbacks: what the document's callbacks print and write, with several replicas as with one."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(fault_free.scheduled)
def test_the_learning_rate_follows_its_schedule(played):
    checks.learning_rate_follows_schedule(played)


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(fault_free.scheduled)
def test_every_epoch_has_its_checkpoint(played):
    checks.every_epoch_is_saved(played)


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(small_programs.event_files)
def test_event_files_hold_what_was_reported(played):
    checks.event_files_hold_the_metrics(played.run, played.then)
