"""Inject process faults: kill, terminate, stop or delay a process, or let it fail by itself."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from suite.harness.cluster.cluster import Cluster
from suite.harness.faults.fault import Fault
from suite.harness.scenarios.base import give_time

BRIEFLY_S = 2.0  # far below the timeout after which TensorFlow declares a silent task dead


@contextlib.contextmanager
def killed(cluster: Cluster, task: str) -> Iterator[None]:
    """Kill the task between two instructions, as a loss of power does."""
    cluster.signal(task, signal.SIGKILL, fault="sigkill")
    cluster.wait_exit(task)
    yield


@contextlib.contextmanager
def terminated(cluster: Cluster, task: str) -> Iterator[None]:
    """Send SIGTERM, as a cluster manager does first."""
    cluster.signal(task, signal.SIGTERM, fault="sigterm")
    yield


@contextlib.contextmanager
def stopped(cluster: Cluster, task: str) -> Iterator[None]:
    """Stop the task while the context lasts; its connections stay open."""
    cluster.signal(task, signal.SIGSTOP, fault="sigstop")
    try:
        yield
    finally:
        cluster.signal(task, signal.SIGCONT, healed="sigstop")


@contextlib.contextmanager
def paused(cluster: Cluster, task: str) -> Iterator[None]:
    """Stop the task briefly, as a snapshot of its machine does, and resume it before `yield`."""
    cluster.signal(task, signal.SIGSTOP, fault="pause")
    give_time(cluster, BRIEFLY_S, lambda _: False)  # peers are expected to tolerate the pause
    cluster.signal(task, signal.SIGCONT, healed="pause")
    yield


@contextlib.contextmanager
def missed(cluster: Cluster, task: str) -> Iterator[None]:
    """Record that the task was not started with its peers."""
    cluster.record("fault_started", task, fault="delayed-start")
    yield


@contextlib.contextmanager
def by_program(cluster: Cluster, task: str) -> Iterator[None]:
    """Wait until the program reports the fault that it injects itself."""
    cluster.wait_for("fault_started", task)
    yield


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "sigkill": Fault("SIGKILL, as a loss of power", killed, ends=True),
        "sigterm": Fault("SIGTERM, as a cluster manager sends first", terminated, ends=True),
        "sigstop": Fault("stopped while its peers react; connections stay open", stopped),
        "pause": Fault("stopped for 2 s, as by a snapshot of its machine", paused, harmless=True),
        "delayed-start": Fault(
            "not started with its peers, but later", missed, ends=True, delayed_start=True
        ),
        "exception": Fault(
            "its program raises an exception", by_program, ends=True, by_program=True
        ),
        "exit": Fault("its program exits early", by_program, ends=True, by_program=True),
        "straggler": Fault("its program is slow", by_program, harmless=True, by_program=True),
    }
)
