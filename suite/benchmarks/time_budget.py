"""How often a benchmark goes through its figures, and in which order: as often as it has time for.

The processes of a figure are then minutes apart, and a slow machine gives fewer of them instead of
a run that takes twice as long. Reports tell of each figure how many it is of. Of what is compared
every second pass goes the other way round, so that a trend of the machine takes no side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Side = TypeVar("Side", bound=Hashable)
T = TypeVar("T")


@dataclass
class Purse:
    """Seconds that benchmarks have left over, and that those after them may spend.

    What one overran is not taken from the others: a run's last figures are not to pay for a bad
    minute at its beginning.
    """

    left_s: float = 0.0


OF_THE_RUN = Purse()


def passes(
    most: int,
    budget_s: float,
    purse: Purse = OF_THE_RUN,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[int]:
    """0, 1, ... up to `most`; the first always, others while the longest so far fits in again.

    `budget_s`: for all of them, besides what is in the purse; infinite ones leave nothing there,
    nor does a pass that ends its test.
    """
    left_s, longest_s = purse.left_s + budget_s, 0.0
    for number in range(most):
        if number and longest_s > left_s:
            break
        begins_s = clock()
        yield number
        took_s = clock() - begins_s
        left_s -= took_s
        longest_s = max(longest_s, took_s)
    if not math.isinf(left_s):
        purse.left_s = max(0.0, left_s)


@dataclass
class Taken(Generic[T]):
    """What was measured of one side, or why it could not be."""

    made: list[T] = field(default_factory=list)
    error: Exception | None = None

    def get(self) -> list[T]:
        """What each pass gave; raises the error of the pass that failed."""
        if self.error:
            raise self.error
        return self.made


def interleaved(
    sides: Sequence[Side],
    measure: Callable[[Side], T],
    enough: Callable[[Side, T], bool],
    numbers: Iterable[int],
) -> dict[Side, Taken[T]]:
    """Measure each side in each of the passes, in every second one in reverse order (A B, B A).

    A side is left out once a measurement of it failed or was `enough`; the others go on.
    """
    taken = {side: Taken[T]() for side in sides}
    going = list(sides)
    for number in numbers:
        for side in going[:: -1 if number % 2 else 1]:
            try:
                taken[side].made.append(measure(side))
            except Exception as error:  # noqa: BLE001 - raised again in the test of that side
                taken[side].error = error
            if taken[side].error or enough(side, taken[side].made[-1]):
                going.remove(side)
    return taken
