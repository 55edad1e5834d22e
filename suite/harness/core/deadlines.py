"""The one place that waits: polling with a deadline, all deadlines from one scaled value."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

POLL_S = 0.01
T = TypeVar("T")


@dataclass(frozen=True)
class Deadlines:
    """How long the harness waits for what, in seconds; `--deadline-scale` stretches all of it."""

    ready_s: float = 120.0  # an interpreter imports TensorFlow
    step_s: float = 60.0  # the next event of a task that trains
    run_s: float = 240.0  # a whole run
    detect_s: float = 40.0  # survivors notice a lost peer
    leave_s: float = 70.0  # and have left: closing a data set may take 60 s, see `Cluster.leaving`
    exit_s: float = 30.0  # a task that was told to end has ended
    turn_s: float = 600.0  # other runs on this machine finish timing; of all tests together

    def scaled(self, factor: float) -> Deadlines:
        return Deadlines(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


def wait_until(
    what: str, condition: Callable[[], T | None], within_s: float, poll_s: float = POLL_S
) -> T:
    """Poll until `condition` gives something true and return it; TimeoutError names `what`."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {within_s:.1f} s for {what}")
        time.sleep(poll_s)
