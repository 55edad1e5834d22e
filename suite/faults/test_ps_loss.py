"""Loss of a parameter server."""

import pytest

from suite.harness import checks, disasters, recovery


@pytest.mark.claim("ps1/ps-loss", "ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps1", "ps2"))
def test_nobody_finishes_without_a_server(scenario, record):
    run = scenario(disasters.server_lost)
    for _, noticed_s in recovery.noticed_s(run):
        record("server_loss_noticed_s", noticed_s, "s", "lower", fault="sigkill")
    record("workers_that_hang", len(recovery.hung(run)), "workers", "lower", fault="sigkill")
    checks.nobody_finishes_without_a_server(run)


@pytest.mark.claim("ps1/ps-loss", "ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps1", "ps2"))
def test_a_restarted_cluster_restores_the_latest_checkpoint(scenario):
    checks.cluster_restores_the_latest(scenario(disasters.server_lost))


@pytest.mark.claim("ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps2",))
def test_a_coordinator_fails_at_once_when_a_server_is_lost(scenario, deadlines):
    run = scenario(disasters.server_lost)
    checks.peers_fail_in_time(run, deadlines.detect_s)
    checks.lost_server_raises(run)
