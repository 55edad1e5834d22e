"""What `ab --base documented` compares trainers with trains at all, on any version of TensorFlow.

Nothing is timed here: a whole comparison takes minutes, and this is looked at in every run.
"""

from __future__ import annotations

import pytest

from suite.harness.ab import interleaved
from suite.harness.core.case import Case
from suite.harness.core.history import Run
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import base


@pytest.mark.cases(documented=True, flavours="full")
@scenario(interleaved.documented)
def test_documented_snippets_train(case: Case, outcome: Run) -> None:
    told = {driver: len(outcome.of(case.trainer.tick, driver)) for driver in outcome.drivers}
    assert min(told.values()) >= base.FEW, told
