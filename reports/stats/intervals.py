"""What a handful of repeated measurements says: a centre, and how far it can be trusted.

Few repeats are the rule here, so no bootstrap, which is too narrow below about ten of them: a
t-interval for a mean, order statistics (no assumption on the distribution) for a median.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median, stdev

from scipy.special import stdtrit

from reports.core.text import MISSING, figure

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A centre and its 95 % interval; `low` and `high` are NaN where there are too few values."""

    count: int
    centre: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def plus_minus(self) -> str:
        """`12.34 ±0.05`: as many decimals as the interval's half width allows.

        `0.25 ±49` where it allows none: a centre is told with two digits at least. `30.1` of one
        value, which has no interval.
        """
        if not self.known:
            return figure(self.centre)
        half = (self.high - self.low) / 2
        if half > abs(self.centre):
            return f"{figure(self.centre, 2)} ±{figure(half, 2)}"
        decimals = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 2
        decimals = min(decimals, _decimals(self.centre, 5))
        return f"{self.centre:,.{decimals}f} ±{half:,.{decimals}f}"

    def interval(self) -> str:
        """`0.41 to 0.45`, or the sign for what is missing."""
        if not self.known:
            return MISSING
        decimals = _decimals(self.centre, 3)
        return f"{self.low:,.{decimals}f} to {self.high:,.{decimals}f}"


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits - 1


def mean(values: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean with Student's t interval; two values are the least that give one."""
    listed = [float(value) for value in values]
    centre, count = fmean(listed), len(listed)
    if count < 2:
        return Estimate(count, centre, math.nan, math.nan)
    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * stdev(listed) / math.sqrt(count)
    return Estimate(count, centre, centre - half, centre + half)


def geometric(values: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Geometric mean of positive values, as of ratios, whose inverses must give the inverse."""
    logs = mean([math.log(value) for value in values], confidence)
    return Estimate(logs.count, *(math.exp(end) for end in (logs.centre, logs.low, logs.high)))


def middle(values: Iterable[float]) -> Estimate:
    """Median with the interval between two order statistics; six values are the least."""
    listed = sorted(float(value) for value in values)
    count = len(listed)
    outside, below = 0, 0.0  # how many values may be cut off at each end
    for cut in range(count // 2):
        below += math.comb(count, cut) / 2**count
        if below > (1 - CONFIDENCE) / 2:
            break
        outside = cut + 1
    low, high = (listed[outside - 1], listed[-outside]) if outside else (math.nan, math.nan)
    return Estimate(count, median(listed), low, high)
