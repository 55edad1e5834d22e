"""Loss of the chief."""

import pytest

from suite.harness import checks, disasters


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(distributed=True, synchronous=True)
def test_peers_of_a_killed_chief_fail_in_time(scenario, deadlines):
    checks.peers_fail_in_time(scenario(disasters.chief_lost), deadlines.detect_s)


@pytest.mark.claim("ps1/supervisor-saves", "ps2/coordinator-loss")
@pytest.mark.cases(families=("ps1", "ps2"))
def test_a_restarted_chief_restores_the_latest_checkpoint(scenario):
    checks.chief_restores_the_latest(scenario(disasters.asynchronous_chief_lost))


@pytest.mark.claim("ps1/worker-loss")
@pytest.mark.cases(families=("ps1",), aggregates=False)
def test_survivors_keep_training_without_the_chief(scenario):
    checks.survivors_keep_training(scenario(disasters.asynchronous_chief_lost))
