"""Loss of a parameter server."""

import pytest

from suite.harness.checks import parameter_servers, restart
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import crashes


@pytest.mark.claim("ps1/ps-loss", "ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps1", "ps2"), events=("checkpoint_saved",), level="observed")
@scenario(crashes.server_lost)
def test_no_worker_finishes_without_parameter_server(outcome, record):
    for _, detection_s in recovery.detection_s(outcome):
        record("server_loss_detection_s", detection_s, "s", "lower", fault="sigkill")
    record("workers_that_hang", len(recovery.hung(outcome)), "workers", "lower", fault="sigkill")
    parameter_servers.no_finish_without_parameter_server(outcome)


@pytest.mark.claim("ps1/ps-loss", "ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps1", "ps2"), events=("checkpoint_saved",), level="observed")
@scenario(crashes.server_lost)
def test_a_restarted_cluster_restores_the_latest_checkpoint(outcome):
    parameter_servers.cluster_restores_the_latest(outcome)


@pytest.mark.claim("ps2/ps-loss-raises")
@pytest.mark.cases(families=("ps2",), events=("checkpoint_saved",), level="observed")
@scenario(crashes.server_lost)
def test_a_coordinator_fails_at_once_when_a_server_is_lost(outcome, deadlines):
    restart.peers_fail_in_time(outcome, deadlines.detect_s)
    parameter_servers.lost_server_raises(outcome)
