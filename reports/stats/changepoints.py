"""Where a series of figures, one a run, changed its level for good: change points.

One odd run is no change, and neither is noise: what is told should be worth an hour of looking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import cast

import numpy as np
from scipy.ndimage import median_filter
from scipy.special import stdtrit

FEWEST = 6  # runs: two levels of LASTING runs
LASTING = 3  # runs that a level takes at least
FLOOR = 0.02  # a smaller change is not told
ALPHA = 0.05  # of histories of noise alone, how many may have a change point anywhere
WINDOW = 5  # runs whose median an odd one is held against
ODD = 4  # times the noise
NORMAL = 1.4826  # standard deviation of normal noise over its median absolute deviation


@dataclass(frozen=True)
class Change:
    """From the run at `place` (counted from 0) on: the medians of the levels before and after."""

    place: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def find(values: Sequence[float], series: int = 1) -> list[Change]:
    """The change points of a series in the order of time, by PELT with squared error on logarithms.

    PELT (Killick, Fearnhead and Eckley, "Optimal detection of changepoints with a linear
    computational cost", JASA 107, 2012) finds the levels with the least sum of squared errors and
    penalties; ruptures has it as KernelCPD with a linear kernel. The error is counted in variances
    of the noise, so a penalty is the square of the t that a change has to reach: Student's quantile
    at ALPHA, two-sided, divided by the number of places where a change could be, and by `series`,
    of how many this is one (Bonferroni). The variance is that of successive differences (von
    Neumann, Annals of Mathematical Statistics 12, 1941), which a lasting step hardly widens, with
    its 2(n-1)²/(3n-4) degrees of freedom. Before that, values farther than ODD times the noise from
    the running median give way to it (Hampel's filter), so that an odd run neither is a change nor
    hides one.

    None for fewer than FEWEST values, or when one is not above zero and has no logarithm. Runs are
    taken as independent of each other: noise that drifts from run to run looks like changes.
    """
    from ruptures import KernelCPD  # brings all of scipy.stats, which takes a second

    count = len(values)
    if count < FEWEST or min(values) <= 0:
        return []
    logs = _less_odd_runs(np.log(np.asarray(values, dtype=float)))
    steps = np.diff(logs)
    noise = np.sqrt(steps @ steps / (2 * (count - 1)))
    if noise == 0:
        return []
    freedom = 2 * (count - 1) ** 2 / (3 * count - 4)
    tested = count - 2 * LASTING + 1
    needed_t = float(stdtrit(freedom, 1 - ALPHA / 2 / tested / series))
    search = KernelCPD(kernel="linear", min_size=LASTING).fit((logs / noise)[:, None])
    ends = cast("list[int]", search.predict(pen=needed_t**2))
    return _above_floor(values, ends[:-1])


def _less_odd_runs(logs: np.ndarray) -> np.ndarray:
    # Mirrored at the ends, where the last run, repeated, would be its own majority.
    usual = median_filter(logs, WINDOW, mode="mirror")
    far = ODD * NORMAL * np.median(np.abs(np.diff(logs))) / np.sqrt(2)
    return np.where(np.abs(logs - usual) > far, usual, logs)


def _above_floor(values: Sequence[float], places: list[int]) -> list[Change]:
    """The changes between these levels; levels that differ by less than the floor become one."""
    while True:
        ends = [0, *places, len(values)]
        levels = [median(values[a:b]) for a, b in pairwise(ends)]
        changes = [
            Change(place, before, after)
            for place, before, after in zip(places, levels, levels[1:], strict=False)
        ]
        smallest = min(changes, key=_size, default=None)
        if smallest is None or _size(smallest) >= np.log1p(FLOOR):
            return changes
        places = [place for place in places if place != smallest.place]


def _size(change: Change) -> float:
    return abs(float(np.log(change.ratio)))
