"""Faults of a link: what leads from a task's host to all others is cut, drops packets or is slow.

The hosts are network namespaces joined by a bridge (see hosts.py), so that TCP, and nothing else,
meets what a cable or a switch would do to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.virtual_hosts import WHOLE
from suite.harness.faults.fault import Fault, Strike
from suite.harness.faults.process_faults import BRIEFLY_S
from suite.harness.scenarios.base import give_time


def hurt(fault: str, state: str) -> Strike:
    """The host's link is in that state (of network_links.py) for as long as the context lasts."""

    @contextlib.contextmanager
    def strike(cluster: Cluster, task: str) -> Iterator[None]:
        cluster.tell("fault_started", task, fault=fault)
        cluster.link(task, state)
        yield
        cluster.link(task, WHOLE)
        cluster.tell("fault_ended", task, fault=fault)

    return strike


@contextlib.contextmanager
def blinked(cluster: Cluster, task: str) -> Iterator[None]:
    """Cut, and whole again well before TensorFlow's heartbeat takes anybody for dead."""
    with hurt("link-flap", "cut")(cluster, task):
        give_time(cluster, BRIEFLY_S, lambda _: False)
    yield


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "link-down": Fault(hurt("link-down", "cut"), on_hosts=True),
        "drop": Fault(hurt("drop", "drop"), on_hosts=True),
        "drop-ingress": Fault(hurt("drop-ingress", "deaf"), on_hosts=True),
        "drop-egress": Fault(hurt("drop-egress", "mute"), on_hosts=True),
        "link-flap": Fault(blinked, harmless=True, on_hosts=True),
        "throttle": Fault(hurt("throttle", "throttle"), harmless=True, on_hosts=True),
    }
)
