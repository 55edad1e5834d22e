"""Check that the programs of `ab --base documented` train on every version of TensorFlow.

Nothing is timed here, because a whole comparison takes minutes and this test is part of every run.
"""

from __future__ import annotations

import pytest

from suite.harness.ab import interleaved
from suite.harness.core.case import Case
from suite.harness.core.history import Run
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import base


@pytest.mark.cases(documented=True, flavors="full")
@scenario(interleaved.documented)
def test_documented_snippets_train(case: Case, outcome: Run) -> None:
    counts = {driver: len(outcome.of(case.trainer.tick, driver)) for driver in outcome.drivers}
    assert min(counts.values()) >= base.FEW, counts
