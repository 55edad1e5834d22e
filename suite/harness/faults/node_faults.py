"""Inject faults of a node: a machine that is lost with all that runs there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from suite.harness.cluster.cluster import Cluster
from suite.harness.faults.fault import Fault


@contextlib.contextmanager
def lost(cluster: Cluster, task: str) -> Iterator[None]:
    """End the task's node, as a loss of power does: its peers get no packet that says so."""
    cluster.end_node(task, fault="node-down")
    cluster.wait_exit(task)
    yield


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {"node-down": Fault("its node loses power", lost, ends=True, on_node=True)}
)
