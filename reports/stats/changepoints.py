"""Change points: runs from which on the level of a series (one value per run) changed for good.

Neither one odd run nor noise is a change: a reported change should be worth an hour of analysis.
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
LASTING = 3  # least number of runs of a level
FLOOR = 0.02  # a smaller relative change is not reported
ALPHA = 0.05  # share of pure-noise histories that may have a change point anywhere
WINDOW = 5  # runs in the running median that detects odd runs
ODD = 4  # distance of an odd run from the running median, in standard deviations of the noise
NORMAL = 1.4826  # standard deviation of normal noise over its median absolute deviation


@dataclass(frozen=True)
class Change:
    """Medians of the levels before and after a change; `place`: the first run after it, from 0."""

    place: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def find(values: Sequence[float], series: int = 1) -> list[Change]:
    """Find the change points in order of time, by PELT with squared error on logarithms.

    PELT (Killick, Fearnhead and Eckley, "Optimal detection of changepoints with a linear
    computational cost", JASA 107, 2012) finds the levels with the least sum of squared errors and
    penalties. ruptures implements it as KernelCPD with a linear kernel. The error is counted in
    variances of the noise, so a penalty is the square of the t that a change has to reach:
    Student's two-sided quantile at ALPHA, divided by the number of places where a change could be,
    and by `series`, the number of series tested together (Bonferroni). The variance is that of
    successive differences (von Neumann, Annals of Mathematical Statistics 12, 1941), which a
    lasting step hardly widens, with its 2(n-1)²/(3n-4) degrees of freedom. Before that, values
    farther than ODD times the noise from the running median are replaced by it (Hampel's filter),
    so that an odd run neither is a change nor hides one.

    Return [] for fewer than FEWEST values, or if a value is not above zero and has no logarithm.
    Runs are assumed to be independent of each other: noise that drifts from run to run looks like
    changes.
    """
    from ruptures import KernelCPD  # imports all of scipy.stats, which takes a second

    count = len(values)
    if count < FEWEST or min(values) <= 0:
        return []
    logs = _less_odd_runs(np.log(np.asarray(values, dtype=float)))
    steps = np.diff(logs)
    noise = np.sqrt(steps @ steps / (2 * (count - 1)))
    if noise == 0:
        return []
    freedom = 2 * (count - 1) ** 2 / (3 * count - 4)
    places_tested = count - 2 * LASTING + 1
    needed_t = float(stdtrit(freedom, 1 - ALPHA / 2 / places_tested / series))
    search = KernelCPD(kernel="linear", min_size=LASTING).fit((logs / noise)[:, None])
    ends = cast("list[int]", search.predict(pen=needed_t**2))
    return _above_floor(values, ends[:-1])


def _less_odd_runs(logs: np.ndarray) -> np.ndarray:
    # Mirrored at the ends, since repeats of the last run would dominate its own median.
    usual = median_filter(logs, WINDOW, mode="mirror")
    far = ODD * NORMAL * np.median(np.abs(np.diff(logs))) / np.sqrt(2)
    return np.where(np.abs(logs - usual) > far, usual, logs)


def _above_floor(values: Sequence[float], places: list[int]) -> list[Change]:
    """Return the changes between these levels; levels that differ by less than FLOOR are merged."""
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
