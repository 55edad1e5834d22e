"""How undisturbed a measurement was: CPU that the hypervisor took, and CPU that others used."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

import psutil

IDLE = ("idle", "iowait", "guest", "guest_nice", "steal")  # guest is in user already


class Watch:
    """From its entry to its exit, as shares of the time of the processors that we may use.

    steal: taken by the hypervisor. foreign: used by processes that are neither this one nor `own`,
    which have to have begun meanwhile, and to live when they are named.
    """

    steal = foreign = 0.0

    def __enter__(self) -> Watch:
        self.began_s, self.began, self.used_s = time.monotonic(), _spent(), 0.0
        self.mine_s = _used_s(os.getpid())
        return self

    def own(self, pids: Iterable[int]) -> None:
        """What these have used so far is not foreign."""
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.used_s += _used_s(pid)

    def __exit__(self, *_: object) -> None:
        passed_s = (time.monotonic() - self.began_s) * len(os.sched_getaffinity(0))
        spent = {name: spent_s - self.began[name] for name, spent_s in _spent().items()}
        busy_s = sum(s for name, s in spent.items() if name not in IDLE)
        own_s = self.used_s + _used_s(os.getpid()) - self.mine_s
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


def _used_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
