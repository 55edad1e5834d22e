"""What `ab --base documented` compares trainers with trains at all, on any version of TensorFlow.

Nothing is timed here: a whole comparison takes minutes, and this is looked at in every run.
"""

from __future__ import annotations

import pytest

from suite.harness import pairs, staging
from suite.harness.cases import Case, plays
from suite.harness.run import Run


@pytest.mark.cases(documented=True, flavours="full")
@plays(pairs.documented)
def test_the_document_s_bare_calls_train(case: Case, played: Run) -> None:
    told = {driver: len(played.of(case.trainer.tick, driver)) for driver in played.drivers}
    assert min(told.values()) >= staging.FEW, told
