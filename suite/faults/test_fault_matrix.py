"""The fault matrix: effect of a fault on the peers, and time to recover."""

from typing import Any

import pytest

from suite.harness.checks import accounting, checkpoints, fault_matrix, parameter_servers, restart
from suite.harness.faults import injection, matrix
from suite.harness.faults.injection import FaultOutcome
from suite.harness.faults.matrix import FAULTS
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import scenario


def measure(outcome: FaultOutcome, record: Any) -> None:
    """Record time to detect, time to recover, lost work, and the cost of a save and a restore."""
    restarted = outcome.restarted == matrix.ALL
    noticed = dict(recovery.detection_s(outcome.run)) if restarted else {}
    if noticed and not recovery.hung(outcome.run):
        record("fault_detection_s", max(noticed.values()), "s", "lower")
    again_s = recovery.recovered_s(outcome.run)
    if again_s is not None:
        record("fault_recovered_s", again_s, "s", "lower")
    if again_s is not None and restarted:
        lost = recovery.steps_lost(outcome.run)
        record("fault_steps_lost", lost, "1", "lower")
        record("fault_examples_lost", lost * recovery.examples_of_a_step(outcome.run), "1", "lower")
    for metric, tell in (("save", recovery.saved_s), ("restore", recovery.restored_s)):
        took_s = tell(outcome.run)
        if took_s is not None:
            record(f"fault_{metric}_s", took_s, "s", "lower")


def others_do_as_promised(outcome: FaultOutcome, limit_s: float) -> None:
    """Check the effect of the faulted task on its peers."""
    fault_matrix.no_premature_success(outcome.run)
    if outcome.promise == matrix.FAIL:
        restart.peers_fail_in_time(outcome.run, limit_s)
    elif outcome.promise == matrix.FINISH:
        fault_matrix.peers_finish(outcome.run, limit_s)
    elif outcome.promise == matrix.WAIT:
        fault_matrix.peers_wait(outcome.run)
    elif outcome.promise == matrix.GO_ON:
        fault_matrix.peers_continue(outcome.run, harmless=FAULTS[outcome.row.fault].harmless)


def all_is_well_again(outcome: FaultOutcome) -> None:
    """Check the result after a restart of the tasks that the document names."""
    run = outcome.run
    if outcome.restarted == matrix.NOBODY:
        return
    if outcome.restarted == matrix.ONE_FEWER:
        assert outcome.fewer
        fault_matrix.smaller_cluster_continues(run, outcome.fewer)
        return
    if FAULTS[outcome.row.fault].at_restart and outcome.reference:
        fault_matrix.damage_is_detected(run, outcome.reference)
    if outcome.row.target == "evaluator":
        accounting.finishes_requested_steps(run)
        checkpoints.evaluates_the_latest(run)
    elif not FAULTS[outcome.row.fault].harmless:
        fault_matrix.training_resumes(run)
    if outcome.reference:
        accounting.finishes_requested_steps(run)
        if outcome.restarted == matrix.ALL:
            fault_matrix.loses_at_most_one_save_interval(run)
        restart.final_weights_equal_uninterrupted(run, outcome.reference)
    elif outcome.restarted == matrix.ALL:
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
