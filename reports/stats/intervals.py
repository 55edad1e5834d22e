"""Estimates from a few repeated measurements: a center and its 95 % interval.

Few repeats are the rule here. Bootstraps are too narrow below about ten repeats, so a mean has a
t-interval, and a median an interval from order statistics (no assumption on the distribution).
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
    """A center and its 95 % interval; `low` and `high` are NaN if there are too few values."""

    count: int
    center: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Return True if there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def plus_minus(self) -> str:
        """Format as `12.34 ±0.05`, with as many decimals as the half width of the interval allows.

        A center has at least two digits: `0.25 ±49`. A single value has no interval: `30.1`.
        """
        if not self.known:
            return figure(self.center)
        half = (self.high - self.low) / 2
        if half > abs(self.center):
            return f"{figure(self.center, 2)} ±{figure(half, 2)}"
        decimals = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 2
        decimals = min(decimals, _decimals(self.center, 5))
        return f"{self.center:,.{decimals}f} ±{half:,.{decimals}f}"

    def interval(self) -> str:
        """Return `0.41 to 0.45`, or the sign for a missing value."""
        if not self.known:
            return MISSING
        decimals = _decimals(self.center, 3)
        return f"{self.low:,.{decimals}f} to {self.high:,.{decimals}f}"


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits - 1


def mean(values: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean with Student's t interval, which needs two values."""
    numbers = [float(value) for value in values]
    center, count = fmean(numbers), len(numbers)
    if count < 2:
        return Estimate(count, center, math.nan, math.nan)
    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * stdev(numbers) / math.sqrt(count)
    return Estimate(count, center, center - half, center + half)


def geometric(values: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the geometric mean of positive values such as ratios; inverse values give 1/mean."""
    logs = mean([math.log(value) for value in values], confidence)
    return Estimate(logs.count, *(math.exp(end) for end in (logs.center, logs.low, logs.high)))


def middle(values: Iterable[float]) -> Estimate:
    """Return the median with the interval between two order statistics, which needs six values."""
    numbers = sorted(float(value) for value in values)
    count = len(numbers)
    outside, below = 0, 0.0  # `outside`: number of values that may be cut off at each end
    for cut in range(count // 2):
        below += math.comb(count, cut) / 2**count
        if below > (1 - CONFIDENCE) / 2:
            break
        outside = cut + 1
    low, high = (numbers[outside - 1], numbers[-outside]) if outside else (math.nan, math.nan)
    return Estimate(count, median(numbers), low, high)
