"""A clock for pytest-benchmark that advances by times that a task recorded."""

from __future__ import annotations

from collections.abc import Sequence


class RecordedClock:
    """A clock for pytest-benchmark that advances by the times that a run has recorded.

    The timed steps run in other processes, so nothing is timed here. Each call of `replay` advances
    the clock by one recorded step. pytest-benchmark then stores and compares real step times.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.left: list[float] = []

    def load(self, times_s: Sequence[float]) -> int:
        """Load new times, and return the number of rounds they last for."""
        self.now_s = 0.0  # small numbers keep their digits
        self.left = list(reversed(times_s))
        return len(times_s)

    def __call__(self) -> float:
        return self.now_s

    def replay(self) -> None:
        """Advance by the next recorded time; by 0 if none is left (--benchmark-disable)."""
        self.now_s += self.left.pop() if self.left else 0.0
