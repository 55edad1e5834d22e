"""Callbacks: what the document's callbacks print and write, with several replicas as with one."""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
def test_the_learning_rate_follows_its_schedule(scenario):
    checks.learning_rate_follows_schedule(scenario(scenarios.scheduled))


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
def test_every_epoch_has_its_checkpoint(scenario):
    checks.every_epoch_is_saved(scenario(scenarios.scheduled))


@pytest.mark.claim("mirrored/callbacks")
@pytest.mark.cases(families=("mirrored",), fit=True)
def test_event_files_hold_what_was_reported(scenario, launch):
    pair = probes.event_files(launch, scenario(scenarios.scheduled))
    checks.event_files_hold_the_metrics(pair.run, pair.then)
