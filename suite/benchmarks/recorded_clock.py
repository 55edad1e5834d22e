"""Times that a task recorded, as a clock for pytest-benchmark."""

from __future__ import annotations

from collections.abc import Sequence


class RecordedClock:
    """A clock for pytest-benchmark that passes the times which a run has recorded.

    What is timed happens in other processes, so there is nothing to time here; each call of
    `replay` lets one recorded step pass. pytest-benchmark then stores and compares real step times.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.left: list[float] = []

    def load(self, times_s: Sequence[float]) -> int:
        """Take new times; returns how many rounds they give."""
        self.now_s = 0.0  # small numbers keep their digits
        self.left = list(reversed(times_s))
        return len(times_s)

    def __call__(self) -> float:
        return self.now_s

    def replay(self) -> None:
        """Let the next recorded time pass; no time when none is left (--benchmark-disable)."""
        self.now_s += self.left.pop() if self.left else 0.0
