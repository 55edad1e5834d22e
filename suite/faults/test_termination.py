"""A program of a user that is asked to end, or of which a worker is killed at any time."""

import pytest

from suite.harness.checks import restart
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import black_box


@pytest.mark.cases(of_user=True, level="black box")
@scenario(black_box.terminated)
def test_sigterm_ends_every_task(outcome, deadlines):
    restart.signal_ends_in_time(outcome, deadlines.exit_s)


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(
    of_user=True, families=("mwms",), distributed=True, synchronous=True, level="black box"
)
@scenario(black_box.killed)
def test_peers_of_a_worker_killed_halfway_fail_in_time(outcome, deadlines):
    restart.peers_fail_in_time(outcome, deadlines.detect_s)
