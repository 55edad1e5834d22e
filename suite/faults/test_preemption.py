"""Preemption: told to leave by SIGTERM, all save at one step, leave, and go on where they were."""

import pytest

from suite.harness import checks
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import crashes, small_programs


@pytest.mark.claim("mwms/preemption", "mwms/backup-preemption")
@pytest.mark.cases(flags=("preemption",), flavours="first")
@plays(crashes.preempted)
def test_told_to_leave_all_save_leave_and_go_on(played, record):
    checks.leaves_after_saving(played.run)
    checks.final_weights_equal_uninterrupted(played.run, played.reference)
    record("preempted_left_s", recovery.left_s(played.run), "s", "lower", fault="sigterm")


@pytest.mark.claim("mwms/backup-preemption")
@pytest.mark.cases(flags=("preemption",), fit=True)
@plays(small_programs.preempted_where_keras_heeds_it)
def test_told_to_leave_fit_saves_where_keras_heeds_it(played):
    checks.leaves_after_saving(played.run)
    checks.final_weights_equal_uninterrupted(played.run, played.reference)
