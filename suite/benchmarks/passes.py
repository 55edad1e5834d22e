"""How often a benchmark goes through its figures: as often as it has time for.

The processes of a figure are then minutes apart, and a slow machine gives fewer of them instead of
a run that takes twice as long. Reports tell of each figure how many it is of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator


def passes(
    most: int, budget_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[int]:
    """0, 1, ... up to `most`; the first always, others while the longest so far fits in again."""
    began_s, longest_s = clock(), 0.0
    for number in range(most):
        begins_s = clock()
        if number and begins_s - began_s + longest_s > budget_s:
            return
        yield number
        longest_s = max(longest_s, clock() - begins_s)
