"""The fault matrix: effect of a fault on the peers, and time to recover."""

from typing import Any

import pytest

from suite.harness.checks import accounting, checkpoints, fault_matrix, parameter_servers, restart
from suite.harness.faults import injection, matrix
from suite.harness.faults.injection import FaultOutcome
from suite.harness.faults.matrix import FAULTS
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import scenario


def measure(struck: FaultOutcome, record: Any) -> None:
    """Record time to detect, time to recover, lost work, and the cost of a save and a restore."""
    restarted = struck.restarted == matrix.ALL
    noticed = dict(recovery.detection_s(struck.run)) if restarted else {}
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


def others_do_as_promised(struck: FaultOutcome, limit_s: float) -> None:
    """Check the effect of the faulted task on its peers."""
    fault_matrix.no_premature_success(struck.run)
    if struck.promise == matrix.FAIL:
        restart.peers_fail_in_time(struck.run, limit_s)
    elif struck.promise == matrix.FINISH:
        fault_matrix.peers_finish(struck.run, limit_s)
    elif struck.promise == matrix.WAIT:
        fault_matrix.peers_wait(struck.run)
    elif struck.promise == matrix.GO_ON:
        fault_matrix.peers_continue(struck.run, harmless=FAULTS[struck.row.fault].harmless)


def all_is_well_again(struck: FaultOutcome) -> None:
    """Check the result after a restart of the tasks that the document names."""
    run = struck.run
    if struck.restarted == matrix.NOBODY:
        return
    if struck.restarted == matrix.ONE_FEWER:
        assert struck.fewer
        fault_matrix.smaller_cluster_continues(run, struck.fewer)
        return
    if FAULTS[struck.row.fault].at_restart and struck.reference:
        fault_matrix.damage_is_detected(run, struck.reference)
    if struck.row.target == "evaluator":
        accounting.finishes_requested_steps(run)
        checkpoints.evaluates_the_latest(run)
    elif not FAULTS[struck.row.fault].harmless:
        fault_matrix.training_resumes(run)
    if struck.reference:
        accounting.finishes_requested_steps(run)
        if struck.restarted == matrix.ALL:
            fault_matrix.loses_at_most_one_save_interval(run)
        restart.final_weights_equal_uninterrupted(run, struck.reference)
    elif struck.restarted == matrix.ALL:
        parameter_servers.cluster_restores_the_latest(run)
    elif len(run.of("spawned", run.drivers[0])) > 1:  # the chief was the target
        parameter_servers.chief_restores_the_latest(run)


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
@scenario(*injection.SCENARIOS)
def test_fault_matrix(outcome: FaultOutcome, deadlines, record) -> None:
    others_do_as_promised(outcome, deadlines.detect_s)
    all_is_well_again(outcome)
    measure(outcome, record)  # last: valid only for the expected outcome
