"""Repetition and order of a benchmark's figures: as many passes as its time allows.

The processes of a figure are then minutes apart, and a slow machine makes fewer passes instead of a
run that takes twice as long. Reports show the number of passes of each figure. In comparisons every
second pass is in reverse order, so that a trend of the machine favors no side.
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
class SpareTime:
    """Seconds that benchmarks have left over, for later benchmarks to spend.

    An overrun is not deducted, so that a slow minute at the start of a run does not shorten its
    last figures.
    """

    left_s: float = 0.0


SPARE_TIME = SpareTime()


def passes(
    most: int,
    budget_s: float,
    spare: SpareTime = SPARE_TIME,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[int]:
    """Yield 0, 1, ... up to `most`, while another pass as long as the longest so far fits.

    The first pass is unconditional. `budget_s`: for all passes, in addition to the spare time. An
    infinite budget leaves no spare time, nor does a pass that ends its test.
    """
    left_s, longest_s = spare.left_s + budget_s, 0.0
    for number in range(most):
        if number and longest_s > left_s:
            break
        begins_s = clock()
        yield number
        took_s = clock() - begins_s
        left_s -= took_s
        longest_s = max(longest_s, took_s)
    if not math.isinf(left_s):
        spare.left_s = max(0.0, left_s)


@dataclass
class Results(Generic[T]):
    """The measurements of one side, or the error that prevented them."""

    values: list[T] = field(default_factory=list)
    error: Exception | None = None

    def get(self) -> list[T]:
        """Return the result of each pass; raise the error of the pass that failed."""
        if self.error:
            raise self.error
        return self.values


def interleaved(
    sides: Sequence[Side],
    measure: Callable[[Side], T],
    enough: Callable[[Side, T], bool],
    numbers: Iterable[int],
) -> dict[Side, Results[T]]:
    """Measure each side in each pass, in reverse order in every second pass (A B, B A).

    A side is left out once a measurement of it failed or was `enough`. The others continue.
    """
    results = {side: Results[T]() for side in sides}
    going = list(sides)
    for number in numbers:
        for side in going[:: -1 if number % 2 else 1]:
            try:
                results[side].values.append(measure(side))
            except Exception as error:  # noqa: BLE001 - raised again in the test of that side
                results[side].error = error
            if results[side].error or enough(side, results[side].values[-1]):
                going.remove(side)
    return results
