"""Run scenarios before the tests that check their outcomes, several concurrently.

A cluster leaves much of the machine idle while its tasks wait for each other, so the next cluster
can start meanwhile. Tests still run sequentially in one process and use the finished runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
GIB_EACH = 2.0  # memory of one cluster
# More concurrent clusters have not been tried. The longest scenarios take more than a minute, so a
# run of everything would hardly end sooner.
MOST_AT_ONCE = 16


def suited(processors: float, memory_gib: float) -> int:
    """Return how many scenarios keep that many processors busy, since one of them often waits."""
    return max(1, min(int(processors) + 1, int(memory_gib / GIB_EACH), MOST_AT_ONCE))


def sensible() -> int:
    """Return how many concurrent scenarios suit the available processors and memory."""
    limits = cgroup_limits()
    available_gib = psutil.virtual_memory().available / 2**30
    processors = [len(os.sched_getaffinity(0)), *limits.processors]
    return suited(min(processors), min([available_gib, *limits.free_gib]))


@dataclass(frozen=True)
class Limits:
    """Limits of a process's control groups, one value for each group that sets one."""

    processors: Sequence[float]
    free_gib: Sequence[float]


def cgroup_limits(proc: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> Limits:
    """Read the limits of this process's control group (version 2) and its ancestors."""
    processors, free_gib = [], []
    for group in _groups(proc, root):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal():
            processors.append(int(quota) / int(period))
        most, used = _read(group / "memory.max"), _read(group / "memory.current")
        if most.isdecimal() and used.isdecimal():
            rows = (line.split() for line in _read(group / "memory.stat").splitlines())
            cached = sum(int(row[1]) for row in rows if row[0] in ("active_file", "inactive_file"))
            free_gib.append((int(most) - int(used) + cached) / 2**30)
    return Limits(processors, free_gib)


def _groups(proc: Path, root: Path) -> Iterator[Path]:
    """Yield the directories of this process's control group and its ancestors."""
    own = [line[3:] for line in _read(proc).splitlines() if line.startswith("0::")]
    for path in own[:1]:
        group = Path(path.lstrip("/"))
        yield from (root / each for each in (group, *group.parents))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # no such control group, or no such controller in it: no limit


class ScenarioPrefetcher:
    """Run scenarios in a thread pool ahead of their tests.

    A test whose scenario has not started yet runs it inline.
    """

    def __init__(self, at_once: int) -> None:
        self.pool = ThreadPoolExecutor(at_once, thread_name_prefix="ahead")
        self.running: list[Future[object]] = []

    def begin(self, scenario: Iterable[Callable[[], object]]) -> None:
        """Submit the scenarios in this order; tests get errors when they request the outcome."""
        self.running += [self.pool.submit(scenario) for scenario in scenario]

    def finish(self) -> None:
        """Wait until all scenarios are done, since concurrent work would disturb timed runs."""
        wait(self.running)

    def cancel(self) -> None:
        """Cancel the scenarios that have not started."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Cancel waiting scenarios and wait for the rest, which fail once their clusters end."""
        self.pool.shutdown(wait=True, cancel_futures=True)
