"""Plays scenarios before the tests that judge them, several at a time.

A cluster leaves much of the machine idle while its tasks wait for each other, so that the next one
may as well start. Tests still run one after the other, in one process: they find the runs made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

MOST_AT_ONCE = 4  # a cluster may take 2 GiB


def sensible() -> int:
    """How many scenarios at once keep this machine's processors busy: one of them often waits."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST_AT_ONCE)


class Ahead:
    """Threads that play; whoever needs a scenario that has not begun plays it without them."""

    def __init__(self, at_once: int) -> None:
        self.pool = ThreadPoolExecutor(at_once, thread_name_prefix="ahead")
        self.playing: list[Future[object]] = []

    def begin(self, plays: Iterable[Callable[[], object]]) -> None:
        """Play them, in this order; what goes wrong is for the tests that ask for the outcome."""
        self.playing += [self.pool.submit(play) for play in plays]

    def finish(self) -> None:
        """Wait until all have been played: nothing may run beside what is timed."""
        wait(self.playing)

    def cancel(self) -> None:
        """Begin nothing more."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for what plays; ending its clusters ends it soon."""
        self.pool.shutdown(wait=True, cancel_futures=True)
