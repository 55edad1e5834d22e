"""The fault table: what the others do when a task is hurt, and how soon all is well again."""

from typing import Any

import pytest

from suite.harness import checks, faults, recovery
from suite.harness.cases import plays
from suite.harness.faults import Struck


def measure(struck: Struck, record: Any) -> None:
    """How soon the others noticed and training went on, what was lost, what a save cost."""
    restarted = struck.promise in (faults.FAIL, faults.NOTHING)
    noticed = dict(recovery.noticed_s(struck.run)) if restarted else {}
    if noticed and not recovery.hung(struck.run):
        record("fault_noticed_s", max(noticed.values()), "s", "lower")
    again_s = recovery.recovered_s(struck.run)
    if again_s is not None:
        record("fault_recovered_s", again_s, "s", "lower")
    if again_s is not None and restarted:
        record("fault_steps_lost", recovery.steps_lost(struck.run), "1", "lower")
    for metric, tell in (("save", recovery.saved_s), ("restore", recovery.restored_s)):
        took_s = tell(struck.run)
        if took_s is not None:
            record(f"fault_{metric}_s", took_s, "s", "lower")


@pytest.mark.claim(
    "mwms/peers-fail",
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mwms/cluster-pauses",
    "estimator/resumes",
    "ps1/worker-loss",
    "ps2/worker-loss-transparent",
)
@pytest.mark.cases(distributed=True, aggregates=False)
@pytest.mark.matrix
@plays(*faults.SCENES)
def test_what_a_fault_does(played: Struck, deadlines, record) -> None:
    run, promise = played.run, played.promise
    checks.nobody_pretends(run)
    if promise == faults.FAIL:
        checks.peers_fail_in_time(run, deadlines.detect_s)
    elif promise == faults.FINISH:
        checks.others_finish(run, deadlines.detect_s)
    elif promise == faults.WAIT:
        checks.others_wait(run)
    elif promise == faults.GO_ON:
        checks.others_go_on(run)
    if faults.FAULTS[played.row.fault].ends and promise != faults.FINISH:
        checks.trains_again(run)
    if run.trainer.synchronous and promise != faults.FINISH:
        checks.finished_as_asked(run)
    if promise in (faults.FAIL, faults.NOTHING):
        checks.little_is_lost(run)
    measure(played, record)  # where something else happened, these would be numbers of that
