"""Callbacks: what the document's callbacks print and write, with several replicas as with one."""

import pytest

from suite.harness import checks, probes, scenarios
from suite.harness.cases import plays


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(scenarios.scheduled)
def test_the_learning_rate_follows_its_schedule(played):
    checks.learning_rate_follows_schedule(played)


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(scenarios.scheduled)
def test_every_epoch_has_its_checkpoint(played):
    checks.every_epoch_is_saved(played)


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(probes.event_files)
def test_event_files_hold_what_was_reported(played):
    checks.event_files_hold_the_metrics(played.run, played.then)
