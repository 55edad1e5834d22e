"""What a fault is; see FAULTS in table.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from suite.harness.cluster.cluster import Cluster

# Hurts the task in the cluster; leaving the context heals what can be healed.
Strike = Callable[[Cluster, str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """What can be done to a task.

    `harmless`: nobody is lost by it. `ends`: the task is to end of it, soon if not at once.
    Neither: it is as good as gone until it is healed.
    """

    strike: Strike
    harmless: bool = False
    ends: bool = False
    planted: bool = False  # the program does it by itself: see suite/programs/planted.py
    on_hosts: bool = False  # each task needs a host of its own, with a link that can be hurt
    on_disk: str = ""  # the model directory needs a disk of its own, of that size
    delayed_start: bool = False  # the task is not there when the others start
    at_restart: bool = False  # all have been ended, and find it when they are started again
