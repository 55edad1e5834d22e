"""Define the type of a fault; see FAULTS in matrix.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from suite.harness.cluster.cluster import Cluster

# Injects the fault into a task of the cluster. Leaving the context removes the fault where
# possible.
Injector = Callable[[Cluster, str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """Describe one kind of fault.

    `harmless`: no task is lost. `ends`: the target is expected to exit, soon if not at once. With
    neither, the target is unavailable until the fault is removed.
    """

    description: str  # what happens to the target
    inject: Injector
    harmless: bool = False
    ends: bool = False
    by_program: bool = (
        False  # the program injects the fault itself: see suite/programs/faulty_trainer.py
    )
    on_hosts: bool = False  # each task needs its own host, with a link that can be impaired
    on_node: bool = False  # the target needs its own node, which can be ended
    on_disk: str = ""  # size of the separate disk that the model directory needs
    delayed_start: bool = False  # the target does not start with its peers
    at_restart: bool = False  # injected while all tasks are down; tasks meet it at restart
