"""Loss of the chief."""

import pytest

from suite.harness.checks import coordinator, parameter_servers, restart, supervisor
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import crashes


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(families=("mwms",), distributed=True, synchronous=True, level="observed")
@scenario(crashes.chief_lost)
def test_peers_of_a_killed_chief_fail_in_time(outcome, deadlines):
    restart.peers_fail_in_time(outcome, deadlines.detect_s)


@pytest.mark.claim("ps1/returning-chief")
@pytest.mark.cases(families=("ps1",), events=("checkpoint_saved",), level="observed")
@scenario(crashes.asynchronous_chief_lost)
def test_returning_chief_keeps_the_model(outcome):
    supervisor.returning_chief_keeps_the_model(outcome)


@pytest.mark.claim("ps1/chief-restores", "ps2/coordinator-loss")
@pytest.mark.cases(families=("ps1", "ps2"), events=("checkpoint_saved",), level="observed")
@scenario(crashes.asynchronous_chief_lost)
def test_a_restarted_chief_restores_the_latest_checkpoint(outcome):
    parameter_servers.chief_restores_the_latest(outcome)


@pytest.mark.claim("ps2/coordinator-loss", "ps2/at-least-once")
@pytest.mark.cases(events=("scheduled", "checkpoint_saved"), level="observed")
@scenario(crashes.asynchronous_chief_lost)
def test_a_restarted_coordinator_counts_its_own_functions_only(outcome):
    coordinator.executed_as_scheduled(outcome)


@pytest.mark.claim("ps1/worker-loss")
@pytest.mark.cases(
    families=("ps1",), aggregates=False, events=("checkpoint_saved",), level="observed"
)
@scenario(crashes.asynchronous_chief_lost)
def test_survivors_keep_training_without_the_chief(outcome):
    parameter_servers.survivors_keep_training(outcome)
