"""Inject link faults: cut or throttle the link of a task's host, or drop its packets.

The hosts are network namespaces joined by a bridge (see virtual_hosts.py), so that only TCP sees
the effect that a faulty cable or switch would have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.virtual_hosts import WHOLE
from suite.harness.faults.fault import Fault, Injector
from suite.harness.faults.process_faults import BRIEFLY_S
from suite.harness.scenarios.base import give_time


def link_fault(fault: str, state: str) -> Injector:
    """Return a fault that keeps the host's link in `state` within the context.

    network_links.py defines the states.
    """

    @contextlib.contextmanager
    def inject(cluster: Cluster, task: str) -> Iterator[None]:
        cluster.record("fault_started", task, fault=fault)
        cluster.link(task, state)
        yield
        cluster.link(task, WHOLE)
        cluster.record("fault_ended", task, fault=fault)

    return inject


@contextlib.contextmanager
def blinked(cluster: Cluster, task: str) -> Iterator[None]:
    """Cut the link, and restore it well before TensorFlow's heartbeat declares a task dead."""
    with link_fault("link-flap", "cut")(cluster, task):
        give_time(cluster, BRIEFLY_S, lambda _: False)
    yield


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "link-down": Fault("its link is cut", link_fault("link-down", "cut"), on_hosts=True),
        "drop": Fault("its link drops all packets", link_fault("drop", "drop"), on_hosts=True),
        "drop-ingress": Fault(
            "its link drops what the task should receive",
            link_fault("drop-ingress", "deaf"),
            on_hosts=True,
        ),
        "drop-egress": Fault(
            "its link drops what the task sends", link_fault("drop-egress", "mute"), on_hosts=True
        ),
        "link-flap": Fault("its link is cut for 2 s", blinked, harmless=True, on_hosts=True),
        "throttle": Fault(
            "its link is slow", link_fault("throttle", "throttle"), harmless=True, on_hosts=True
        ),
    }
)
