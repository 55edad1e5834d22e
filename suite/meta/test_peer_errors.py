"""Tests of the TensorFlow errors that mean a lost peer, observed or taken from its source."""

from __future__ import annotations

import pytest

from reference_trainers.support.peer_errors import is_peer_loss

TASK = "/job:worker/replica:0/task:1"
HEARTBEAT = "/tensorflow.CoordinationService/Heartbeat"
GRPC = f"\nAdditional GRPC error information from remote target {TASK} while calling "
BARRIER = f"Barrier Id: [Init]Wait_for_all_tasks_to_register, Task: {TASK}"
RESTARTED = (
    "expects a different device incarnation: 1 vs. 2. Your worker job was probably restarted"
)
MISMATCH = "Collective instance 122 expected type 1 and data_type 9 but got type 1 and data_type 1"


def aborted(reason: str) -> str:
    """Return TensorFlow's message for a collective that was aborted for this reason."""
    return f"Collective ops is aborted by: {reason}\nThe error could be from a previous operation."


LOST = {
    "connection": ("UnavailableError", aborted(f"Socket closed{GRPC}/tensorflow.WorkerService")),
    "heartbeat-2.15": ("DeadlineExceededError", aborted(f"Deadline Exceeded{GRPC}{HEARTBEAT}:")),
    "heartbeat-2.21": (
        "DeadlineExceededError",
        aborted(f"Deadline Exceeded\n\nRPC: {HEARTBEAT}"),
    ),
    "barrier-2.15": ("InternalError", f"Barrier failed from a task error. {BARRIER}"),
    "barrier-2.21": (
        "InternalError",
        f"Barrier failed because: task is set to ERROR: UNAVAILABLE: Task {TASK}. {BARRIER}",
    ),
    "before-barrier": (
        "InternalError",
        f"Task ({TASK}) is already in error before the barrier was called. {BARRIER}",
    ),
    "restarted": ("FailedPreconditionError", aborted(f"RecvBuf {RESTARTED}")),
    "group": (
        "FailedPreconditionError",
        f"Device {TASK}/device:CPU:0 current incarnation doesn't match with one in the group.",
    ),
}
OTHER = {
    "own-error": ("InternalError", aborted("Blas GEMM launch failed")),
    "answer-of-a-peer": ("InternalError", aborted(f"{MISMATCH}{GRPC}/tensorflow.WorkerService")),
    "check-thread": ("InternalError", aborted("unexpected exception in check alive: 1")),
    "another-type": ("InternalError", aborted(f"Deadline Exceeded\n\nRPC: {HEARTBEAT}")),
    "no-variable": ("FailedPreconditionError", "Could not find variable dense/kernel."),
    "own-deadline": ("DeadlineExceededError", aborted("Collective has timed out during execution")),
    "unnamed-call": ("DeadlineExceededError", aborted("Deadline Exceeded")),
    "shapes": ("InvalidArgumentError", aborted("Shape mismatch in the collective instance 207.")),
}


@pytest.mark.parametrize(("kind", "message"), LOST.values(), ids=LOST)
def test_error_is_a_lost_peer_if_its_message_names_one(kind: str, message: str) -> None:
    assert is_peer_loss(kind, message)


@pytest.mark.parametrize(("kind", "message"), OTHER.values(), ids=OTHER)
def test_error_is_the_tasks_own_if_it_names_no_peer(kind: str, message: str) -> None:
    assert not is_peer_loss(kind, message)
