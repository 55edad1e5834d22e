"""Preemption: told to leave by SIGTERM, all save at one step, leave, and go on where they were."""

import pytest

from suite.harness import checks, disasters, recovery
from suite.harness.cases import plays


@pytest.mark.claim("mwms/preemption")
@pytest.mark.cases(flags=("preemption",))
@plays(disasters.preempted)
def test_told_to_leave_all_save_leave_and_go_on(played, record):
    checks.leaves_after_saving(played.run)
    checks.final_weights_equal_uninterrupted(played.run, played.reference)
    record("preempted_left_s", recovery.left_s(played.run), "s", "lower", fault="sigterm")
