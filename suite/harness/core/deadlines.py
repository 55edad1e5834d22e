"""The only polling loop of the harness, and all its deadlines, which one factor scales."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

POLL_S = 0.01
T = TypeVar("T")


@dataclass(frozen=True)
class Deadlines:
    """Deadlines of the harness in seconds; `--deadline-scale` scales all of them."""

    ready_s: float = 120.0  # an interpreter imports TensorFlow
    step_s: float = 60.0  # a training task writes its next event
    run_s: float = 240.0  # a whole run
    detect_s: float = 40.0  # survivors detect a lost peer
    leave_s: float = 70.0  # they exit: closing a data set may take 60 s, see `Cluster.leaving`
    exit_s: float = 30.0  # a task exits after a signal or request to end
    orphan_s: float = 5.0  # processes that a task has started end after it
    turn_s: float = 600.0  # other runs on this machine finish timing; in total for all tests

    def scaled(self, factor: float) -> Deadlines:
        return Deadlines(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


def wait_until(
    what: str, condition: Callable[[], T | None], within_s: float, poll_s: float = POLL_S
) -> T:
    """Poll until `condition` returns a true value and return it; TimeoutError names `what`."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {within_s:.1f} s for {what}")
        time.sleep(poll_s)
