"""Loss of the chief."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import crashes


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(families=("mwms",), distributed=True, synchronous=True)
@plays(crashes.chief_lost)
def test_peers_of_a_killed_chief_fail_in_time(played, deadlines):
    checks.peers_fail_in_time(played, deadlines.detect_s)


@pytest.mark.claim("ps1/supervisor-saves", "ps2/coordinator-loss")
@pytest.mark.cases(families=("ps1", "ps2"))
@plays(crashes.asynchronous_chief_lost)
def test_a_restarted_chief_restores_the_latest_checkpoint(played):
    checks.chief_restores_the_latest(played)


@pytest.mark.claim("ps2/coordinator-loss", "ps2/at-least-once")
@pytest.mark.cases(events=("scheduled",))
@plays(crashes.asynchronous_chief_lost)
def test_a_restarted_coordinator_counts_its_own_functions_only(played):
    checks.executed_as_scheduled(played)


@pytest.mark.claim("ps1/worker-loss")
@pytest.mark.cases(families=("ps1",), aggregates=False)
@plays(crashes.asynchronous_chief_lost)
def test_survivors_keep_training_without_the_chief(played):
    checks.survivors_keep_training(played)
