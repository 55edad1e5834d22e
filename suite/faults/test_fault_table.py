"""The fault table: what the others do when a task is hurt, and how soon all is well again."""

from typing import Any

import pytest

from suite.harness import checks, faults
from suite.harness.faults import FAULTS, Struck
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import plays


def measure(struck: Struck, record: Any) -> None:
    """How soon the others noticed and training went on, what was lost, what a save cost."""
    restarted = struck.restarted == faults.ALL
    noticed = dict(recovery.noticed_s(struck.run)) if restarted else {}
    if noticed and not recovery.hung(struck.run):
        record("fault_noticed_s", max(noticed.values()), "s", "lower")
    again_s = recovery.recovered_s(struck.run)
    if again_s is not None:
        record("fault_recovered_s", again_s, "s", "lower")
    if again_s is not None and restarted:
        lost = recovery.steps_lost(struck.run)
        record("fault_steps_lost", lost, "1", "lower")
        record("fault_examples_lost", lost * recovery.examples_of_a_step(struck.run), "1", "lower")
    for metric, tell in (("save", recovery.saved_s), ("restore", recovery.restored_s)):
        took_s = tell(struck.run)
        if took_s is not None:
            record(f"fault_{metric}_s", took_s, "s", "lower")


def others_do_as_promised(struck: Struck, limit_s: float) -> None:
    """What the task that was hurt does to those that were not."""
    checks.nobody_pretends(struck.run)
    if struck.promise == faults.FAIL:
        checks.peers_fail_in_time(struck.run, limit_s)
    elif struck.promise == faults.FINISH:
        checks.others_finish(struck.run, limit_s)
    elif struck.promise == faults.WAIT:
        checks.others_wait(struck.run)
    elif struck.promise == faults.GO_ON:
        checks.others_go_on(struck.run, harmless=FAULTS[struck.row.fault].harmless)


def all_is_well_again(struck: Struck) -> None:
    """What comes of it when those whom the document names are started again."""
    run = struck.run
    if struck.restarted == faults.NOBODY:
        return
    if struck.restarted == faults.ONE_FEWER:
        assert struck.fewer
        checks.fewer_go_on(run, struck.fewer)
        return
    if FAULTS[struck.row.fault].at_restart and struck.reference:
        checks.damage_is_noticed(run, struck.reference)
    if struck.row.victim == "evaluator":
        checks.finished_as_asked(run)
        checks.evaluates_the_latest(run)
    elif not FAULTS[struck.row.fault].harmless:
        checks.trains_again(run)
    if struck.reference:
        checks.finished_as_asked(run)
        if struck.restarted == faults.ALL:
            checks.little_is_lost(run)
        checks.final_weights_equal_uninterrupted(run, struck.reference)
    elif struck.restarted == faults.ALL:
        checks.cluster_restores_the_latest(run)
    elif len(run.of("spawned", run.drivers[0])) > 1:  # it was the chief that was lost
        checks.chief_restores_the_latest(run)


@pytest.mark.claim(
    "mwms/peers-fail",
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mwms/cluster-pauses",
    "estimator/resumes",
    "estimator/train-and-evaluate",
    "ps1/worker-loss",
    "ps1/ps-loss",
    "ps2/worker-loss-transparent",
    "ps2/ps-loss-raises",
    "ps2/coordinator-loss",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
)
@pytest.mark.cases
@plays(*faults.SCENES)
def test_what_a_fault_does(played: Struck, deadlines, record) -> None:
    others_do_as_promised(played, deadlines.detect_s)
    all_is_well_again(played)
    measure(played, record)  # where something else happened, these would be numbers of that
