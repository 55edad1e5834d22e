"""Loss of a parameter server."""

import pytest

from suite.harness import checks
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import crashes


@pytest.mark.claim("ps1/ps-loss", "ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps1", "ps2"))
@plays(crashes.server_lost)
def test_nobody_finishes_without_a_server(played, record):
    for _, noticed_s in recovery.noticed_s(played):
        record("server_loss_noticed_s", noticed_s, "s", "lower", fault="sigkill")
    record("workers_that_hang", len(recovery.hung(played)), "workers", "lower", fault="sigkill")
    checks.nobody_finishes_without_a_server(played)


@pytest.mark.claim("ps1/ps-loss", "ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps1", "ps2"))
@plays(crashes.server_lost)
def test_a_restarted_cluster_restores_the_latest_checkpoint(played):
    checks.cluster_restores_the_latest(played)


@pytest.mark.claim("ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps2",))
@plays(crashes.server_lost)
def test_a_coordinator_fails_at_once_when_a_server_is_lost(played, deadlines):
    checks.peers_fail_in_time(played, deadlines.detect_s)
    checks.lost_server_raises(played)
