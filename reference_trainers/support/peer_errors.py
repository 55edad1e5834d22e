"""Distinguish errors caused by a lost peer from other TensorFlow errors, by type and message.

Standard library only, so that the rules can be tested without TensorFlow.
"""

import re

# TensorFlow raises these if a peer is gone: its connection is broken, it sends no heartbeat, or
# collectives were aborted for one of these reasons.
PEER_TYPES = ("UnavailableError", "AbortedError", "CancelledError")

HEARTBEAT = r"/tensorflow\.CoordinationService/Heartbeat\b"
# Other types are errors of TensorFlow or of the program, unless the message names a lost peer:
# (type, pattern of the message). Two common texts name none. "Collective ops is aborted by" comes
# with every error within a process. "Additional GRPC error information from remote target" comes
# also with the error that a living peer answers, as when one worker has restored a checkpoint and
# the other has not: "Collective instance 122 expected type 1 and data_type 9 but got ...".
PEER_MESSAGES = (
    # The leader of the coordination service does not answer heartbeats. Seen with TensorFlow 2.15
    # and 2.21 where a link is cut or drops packets. 2.15 has gRPC's text, which later versions
    # replace by the name of the call.
    # https://github.com/tensorflow/tensorflow/blob/c7ffe90138b2a238b8dd80da9aed0922208f4ccc/third_party/xla/xla/tsl/distributed_runtime/coordination/coordination_service_error_util.cc
    (
        "DeadlineExceededError",
        r"Deadline Exceeded\s+(RPC:|Additional GRPC error information from .* while calling) "
        + HEARTBEAT,
    ),
    # A task failed or left while others waited for it at a barrier (the cluster forms by one).
    # From the source of TensorFlow 2.21 (2.15: the second line), not seen here.
    # https://github.com/tensorflow/tensorflow/blob/02261c362db8b97c76dfd12c9b38dacab8a629ae/third_party/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc
    # https://github.com/tensorflow/tensorflow/blob/0fe08f44ef04f55b49b4069754ed43a265fba2c0/third_party/xla/third_party/tsl/tsl/distributed_runtime/coordination/coordination_service.cc
    ("InternalError", r"Barrier failed because: task (is set to ERROR|disconnected)\b"),
    ("InternalError", r"Barrier failed from a (task error|disconnected task)\. Barrier Id: "),
    # The same, where the task had failed before. From the source of both, not seen here.
    ("InternalError", r"Task \(/job:\S+\) is already in error before the barrier was called"),
    # A peer is another process than before: it was restarted. From the source, not seen here.
    # https://github.com/tensorflow/tensorflow/blob/a71975990f2c35fa600cd9db1e7069d6fdf69958/tensorflow/core/common_runtime/buf_rendezvous.cc
    (
        "FailedPreconditionError",
        r"RecvBuf expects a different device incarnation: .* was probably restarted",
    ),
    # https://github.com/tensorflow/tensorflow/blob/d75edc93bfaf83aacbac4d25d0161141c7c928b0/tensorflow/core/common_runtime/collective_param_resolver_local.cc
    (
        "FailedPreconditionError",
        r"Device /job:\S+ current incarnation doesn't match with one in the group",
    ),
)


def is_from_peer_loss(error):
    """Return True if an exception means a lost peer."""
    return is_peer_loss(type(error).__name__, str(error))


def is_peer_loss(kind, message):
    """Return True if an error of that type (its class's name) and message means a lost peer."""
    if kind in PEER_TYPES:
        return True
    return any(kind == type_ and re.search(pattern, message) for type_, pattern in PEER_MESSAGES)
