"""Measure interference: CPU taken by the hypervisor, and CPU used by other processes."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

BUSY = ("user", "nice", "system")  # of processes; interrupts count as kernel time


class Watch:
    """Measure interference within a context, as shares of the time of the processors in use.

    steal: taken by the hypervisor. foreign: used by processes other than `root` (a pid, by default
    this process) and its descendants. alone: True if no other run was timing.
    """

    steal = foreign = 0.0

    def __init__(self, root: int | None = None, alone: bool = True) -> None:
        self.root = os.getpid() if root is None else root
        self.alone = alone

    def __enter__(self) -> Watch:
        self.began_s, self.began, self.before_s = time.monotonic(), _spent(), _used_s(self.root)
        return self

    def __exit__(self, *_: object) -> None:
        passed_s = (time.monotonic() - self.began_s) * len(os.sched_getaffinity(0))
        spent = {name: spent_s - self.began[name] for name, spent_s in _spent().items()}
        busy_s = sum(spent.get(name, 0.0) for name in BUSY)
        own_s = _used_s(self.root) - self.before_s
        self.steal = spent.get("steal", 0.0) / passed_s
        self.foreign = max(0.0, busy_s - own_s) / passed_s


def mhz() -> float | None:
    """Return the mean clock frequency of the processors now; None if it is unknown."""
    frequency = psutil.cpu_freq()
    return frequency.current if frequency else None


def _spent() -> dict[str, float]:
    """Return the seconds of our processors by state, since boot."""
    every = psutil.cpu_times(percpu=True)
    ours = [every[number] for number in os.sched_getaffinity(0) if number < len(every)]
    return {name: sum(getattr(times, name) for times in ours) for name in every[0]._fields}


def _used_s(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, ended ones included.

    Children that were never reaped are not counted.
    """
    process = psutil.Process(root)
    used_s = 0.0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            used_s += times.user + times.system + times.children_user + times.children_system
    return used_s
