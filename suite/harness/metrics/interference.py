"""How undisturbed a measurement was: CPU that the hypervisor took, and CPU that others used."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

BUSY = ("user", "nice", "system")  # of processes; the kernel serves what it is asked in others


class Watch:
    """From its entry to its exit, as shares of the time of the processors that we may use.

    steal: taken by the hypervisor. foreign: used by processes that are neither `root` (a pid, by
    default this process) nor below it. alone: whether no other run was timing.
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
    """Mean clock frequency of the processors now; None where the machine does not tell."""
    told = psutil.cpu_freq()
    return told.current if told else None


def _spent() -> dict[str, float]:
    """Seconds by what our processors did, since they were started."""
    every = psutil.cpu_times(percpu=True)
    ours = [every[number] for number in os.sched_getaffinity(0) if number < len(every)]
    return {name: sum(getattr(times, name) for times in ours) for name in every[0]._fields}


def _used_s(root: int) -> float:
    """Seconds of CPU of a process, of all below it, and of those of them that have ended.

    Of whom nobody waited for nothing is known.
    """
    process = psutil.Process(root)
    used_s = 0.0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            used_s += times.user + times.system + times.children_user + times.children_system
    return used_s
