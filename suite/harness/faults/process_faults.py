"""Faults of a process: it is gone, asked to leave, stands still, or goes wrong by itself."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from suite.harness.cluster.cluster import Cluster
from suite.harness.faults.fault import Fault
from suite.harness.scenarios.base import give_time

BRIEFLY_S = 2.0  # much less than the seconds after which TensorFlow takes a silent task for dead


@contextlib.contextmanager
def killed(cluster: Cluster, task: str) -> Iterator[None]:
    """It is gone between two instructions, as with a machine that loses power."""
    cluster.signal(task, signal.SIGKILL, fault="sigkill")
    cluster.wait_exit(task)
    yield


@contextlib.contextmanager
def terminated(cluster: Cluster, task: str) -> Iterator[None]:
    """It is asked to leave, as a cluster manager does first."""
    cluster.signal(task, signal.SIGTERM, fault="sigterm")
    yield


@contextlib.contextmanager
def stopped(cluster: Cluster, task: str) -> Iterator[None]:
    """It stands still with its connections open, for as long as the context lasts."""
    cluster.signal(task, signal.SIGSTOP, fault="sigstop")
    try:
        yield
    finally:
        cluster.signal(task, signal.SIGCONT, healed="sigstop")


@contextlib.contextmanager
def paused(cluster: Cluster, task: str) -> Iterator[None]:
    """It stands still for a moment, as in a snapshot of its machine, and is back before `yield`."""
    cluster.signal(task, signal.SIGSTOP, fault="pause")
    give_time(cluster, BRIEFLY_S, lambda _: False)  # that nobody minds is what is to be seen
    cluster.signal(task, signal.SIGCONT, healed="pause")
    yield


@contextlib.contextmanager
def missed(cluster: Cluster, task: str) -> Iterator[None]:
    """It has not been started with the others."""
    cluster.tell("fault_started", task, fault="delayed-start")
    yield


@contextlib.contextmanager
def planted(cluster: Cluster, task: str) -> Iterator[None]:
    """The program does it by itself: wait until it tells so."""
    cluster.wait_for("fault_started", task)
    yield


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "sigkill": Fault(killed, ends=True),
        "sigterm": Fault(terminated, ends=True),
        "sigstop": Fault(stopped),
        "pause": Fault(paused, harmless=True),
        "delayed-start": Fault(missed, ends=True, delayed_start=True),
        "exception": Fault(planted, ends=True, planted=True),
        "exit": Fault(planted, ends=True, planted=True),
        "straggler": Fault(planted, harmless=True, planted=True),
    }
)
