"""What `ab --base documented` compares trainers with trains at all, on any version of TensorFlow.

Nothing is timed here: a whole comparison takes minutes, and this is looked at in every run.
"""

from __future__ import annotations

import pytest

from suite.harness.ab import interleaved
from suite.harness.core.case import Case
from suite.harness.core.history import Run
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import base


@pytest.mark.cases(documented=True, flavours="full")
@plays(interleaved.documented)
def test_the_document_s_bare_calls_train(case: Case, played: Run) -> None:
    told = {driver: len(played.of(case.trainer.tick, driver)) for driver in played.drivers}
    assert min(told.values()) >= base.FEW, told
