"""Compute confidence intervals by bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A point estimate and its bootstrap confidence interval."""

    estimate: float
    low: float
    high: float

    def named(self, metric: str) -> Iterator[tuple[str, float]]:
        """Yield the estimate as `metric`, and its bounds as `metric`_low and `metric`_high.

        A measurement holds one number.
        """
        yield metric, self.estimate
        yield f"{metric}_low", self.low
        yield f"{metric}_high", self.high


def bootstrap(
    statistic: Callable[..., np.ndarray], *samples: Sequence[float], seed: int = 1
) -> Interval:
    """Return the 95 % percentile bootstrap interval of `statistic(*samples, axis=-1)`.

    The same input gives the same interval. Each sample is resampled independently. Paired values
    belong in one sample, such as the ratios of pairs. The interval is too narrow below about ten
    values.
    """
    arrays = tuple(np.asarray(sample, dtype=float) for sample in samples)
    from scipy import stats  # its import takes longer than most measurements

    found = stats.bootstrap(
        arrays,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(seed),  # type: ignore[call-arg] - `rng` from 1.15 on
    ).confidence_interval
    return Interval(float(statistic(*arrays, axis=-1)), float(found.low), float(found.high))


def ratio_of_medians(values: Sequence[float], base: Sequence[float]) -> Interval:
    """Return the ratio of the median of `values` to the median of `base`."""

    def ratio(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return np.median(a, axis=axis) / np.median(b, axis=axis)

    return bootstrap(ratio, values, base)


def mean_ratio(ratios: Sequence[float]) -> Interval:
    """Return the geometric mean of the ratios of pairs: a reversed pair must give the inverse."""

    def geometric(a: np.ndarray, axis: int) -> np.ndarray:
        return np.exp(np.mean(np.log(a), axis=axis))

    return bootstrap(geometric, ratios)
