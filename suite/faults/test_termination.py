"""A program of a user that is asked to end."""

import pytest

from suite.harness.checks import restart
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import termination


@pytest.mark.cases(of_user=True, level="black box")
@scenario(termination.terminated, termination.terminated_early)
def test_sigterm_ends_every_task(outcome, deadlines):
    restart.signal_ends_in_time(outcome.run, outcome.reference, deadlines.exit_s)
