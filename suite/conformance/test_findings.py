"""Findings: each standalone reproduction agrees with the rows of expectations.toml.

A row with `finding = NAME` states for which versions docs/findings/NAME.py observes the deviation.
"""

import pytest

from suite.harness.checks import reproductions as checks
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios.reproductions import reproductions


@pytest.mark.findings
@pytest.mark.cases(families=("single",))
@scenario(*reproductions())
def test_reproduction_agrees_with_its_row(outcome):
    checks.promise_is_kept(outcome)
