"""The fault matrix: effect of a fault on the peers, and time to recover."""

from typing import Any

import pytest

from suite.harness.faults import injection, promises
from suite.harness.faults.injection import FaultOutcome
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import scenario


def measure(outcome: FaultOutcome, record: Any) -> None:
    """Record time to detect, time to recover, lost work, and the cost of a save and a restore."""
    restarted = outcome.restarted == promises.ALL
    detected = dict(recovery.detection_s(outcome.run)) if restarted else {}
    if detected and not recovery.hung(outcome.run):
        record("fault_detection_s", max(detected.values()), "s", "lower")
    again_s = recovery.recovered_s(outcome.run)
    if again_s is not None:
        record("fault_recovered_s", again_s, "s", "lower")
    if again_s is not None and restarted and outcome.run.of("step"):  # some report epochs only
        lost = recovery.steps_lost(outcome.run)
        record("fault_steps_lost", lost, "1", "lower")
        examples = recovery.examples_of_a_step(outcome.run)
        if examples is not None:
            record("fault_examples_lost", lost * examples, "1", "lower")
    for metric, duration_s in (("save", recovery.saved_s), ("restore", recovery.restored_s)):
        took_s = duration_s(outcome.run)
        if took_s is not None:
            record(f"fault_{metric}_s", took_s, "s", "lower")


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
@pytest.mark.cases(controls=("epochs", "steps-per-epoch", "model-dir"))
@scenario(*injection.SCENARIOS)
def test_fault_matrix(outcome: FaultOutcome, deadlines, record) -> None:
    promises.judge(outcome, deadlines.detect_s)
    measure(outcome, record)  # last: valid only for the expected outcome
