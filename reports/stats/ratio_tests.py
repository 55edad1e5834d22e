"""Ratio tests: the ratio NEW/BASE with its interval and p-value, and the answer that follows.

All computation is on logarithms, so that swapped sides give the inverse. The unit of evidence is
the process, not the turn or step in it: differences between processes (memory layout, placement of
threads) do not average out over the steps of one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from reports.stats.intervals import CONFIDENCE

FLOOR = 0.02  # least relative change that counts
FAMILY = 1600  # comparisons that together must not give a single false alarm
LEAST_PAIRS = 8  # with fewer pairs Student's t does not hold its level, see `paired`
FAR_APART = 2.5  # limit of the scatter between pairs, as a multiple of the scatter of turns
# This share of a pair's turns is trimmed at either end. With a quarter at each end (interquartile
# mean) a burst of stolen CPU in less than a quarter of the turns has no effect. The efficiency for
# normal noise is 85 % of the mean's; the median's is 65 %, and its bootstrap is coarse.
TRIMMED = 0.25
RESAMPLES = 4000
CENTERS = 200  # resampled centers of one pair, from which the resamples of all pairs draw
EQUAL = 1e-12  # logarithms closer than this differ by rounding

Values = Sequence[float] | np.ndarray  # one-dimensional


class Answer(str, Enum):
    """Answer of a comparison; the value is its name in every report."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_CHANGE = "no change"
    CANNOT_TELL = "cannot tell"


CHANGED = (Answer.REGRESSION, Answer.IMPROVEMENT)


@dataclass(frozen=True)
class Effect:
    """A ratio NEW/BASE (geometric), its 95 % interval, and the p-value of "no change".

    `low`, `high`, `p` are NaN if unknown: fewer than two processes (a side, or pairs). `processes`:
    pairs of processes; unpaired, those of the side that has fewer.
    """

    ratio: float
    low: float
    high: float
    p: float
    processes: int

    @property
    def known(self) -> bool:
        """Return True if there is an interval and a p-value."""
        return not math.isnan(self.p)


def paired(log_ratios: Sequence[Values] | np.ndarray, seed: int = 1) -> Effect:
    """Return the effect from pairs of processes with interleaved turns; deterministic.

    `log_ratios`: one inner sequence for each pair, with logarithms of NEW/BASE of adjacent turns. A
    pair's center is their interquartile mean; the effect is the mean of the centers. p is that of
    Student's t over the centers. The interval is a hierarchical bootstrap, first of pairs, then of
    the turns within (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013),
    widened for few pairs (see `_interval`). If pairs differ by no more than the noise of their
    turns, the interval is up to 1.4 times too wide, since it contains that noise twice. If pairs do
    differ, it is exact.

    Student's t assumes normal centers. If processes are either fast or slow, it still holds its
    level at 1,600 comparisons from 8 pairs on; 6 pairs give some 15 times too many false alarms
    there.

    Raise ValueError if there is no pair, a pair without turns, or a number that is not finite.
    """
    pairs = [_finite(turns, "log ratio") for turns in log_ratios]
    if not pairs:
        raise ValueError("there is no pair of processes")
    centers = np.array([location(turns) for turns in pairs])
    center, count = float(centers.mean()), len(centers)
    if count < 2:
        return Effect(math.exp(center), math.nan, math.nan, math.nan, count)
    rng = np.random.default_rng(seed)
    # Drawing from a pool of resampled centers of each pair is the same bootstrap as resampling the
    # turns anew each time, at a hundredth of the work.
    pool = np.array(
        [location(turns[rng.integers(len(turns), size=(CENTERS, len(turns)))]) for turns in pairs]
    )
    shape = (RESAMPLES, count)
    indices = rng.integers(count, size=shape), rng.integers(CENTERS, size=shape)
    deviations = (pool[indices].mean(axis=1) - center) * math.sqrt(count / (count - 1))
    low, high = _interval(center, deviations, count - 1)
    p = _p_value(center, _variance(centers) / count, count - 1, by_labels=2.0 ** (1 - count))
    return Effect(math.exp(center), low, high, p, count)


def scatter_of_turns(log_ratios: Sequence[np.ndarray], seed: int = 1) -> float:
    """Return the standard deviation of the pairs' centers if only turns differed, not processes.

    It is computed by a bootstrap of ABBA blocks (two log ratios), since the sides alternate in
    taking the first turn, which may be an advantage. Blocks are assumed to be independent, so
    bursts over several blocks are missed.
    """
    rng = np.random.default_rng(seed)
    variances = []
    for turns in log_ratios:
        blocks = turns[: len(turns) // 2 * 2].reshape(-1, 2)
        samples = blocks[rng.integers(len(blocks), size=(CENTERS, len(blocks)))]
        variances.append(location(samples.reshape(CENTERS, -1)).var(ddof=1))
    return math.sqrt(np.mean(variances))


def far_apart(log_ratios: Sequence[np.ndarray]) -> bool:
    """Return True if pairs differ so much that more pairs are more informative than more turns.

    The result depends on how much the pairs differ, not on the direction of the effect; see
    `enough`.
    """
    if len(log_ratios) < LEAST_PAIRS:
        return False
    centers = np.array([location(np.asarray(turns)) for turns in log_ratios])
    return math.sqrt(_variance(centers)) > FAR_APART * scatter_of_turns(log_ratios)


def enough(log_ratios: Sequence[np.ndarray]) -> bool:
    """Return True if pairs agree well enough to detect twice the floor among FAMILY comparisons.

    The condition is that half of Student's interval, at that level, is at most the floor. It
    depends on how much the pairs differ, not on the direction of the effect: stopping as soon as an
    effect shows would inflate false alarms.
    """
    if len(log_ratios) < LEAST_PAIRS:
        return False
    centers = np.array([location(np.asarray(turns)) for turns in log_ratios])
    error = math.sqrt(_variance(centers) / len(centers))
    level = (1 - CONFIDENCE) / FAMILY
    return error * float(stdtrit(len(centers) - 1, 1 - level / 2)) <= math.log1p(FLOOR)


def unpaired(
    base: Values,
    new: Values,
    drift: float = 0.0,
    seed: int = 1,
    drift_df: float = math.inf,
) -> Effect:
    """Return the effect from positive values, one per process, of two runs; deterministic.

    `drift`: standard deviation, as a logarithm, of a run's level from that of another run hours
    apart, which no single run can show. It is a random effect, so 2 * drift**2 is added to the
    variance of the difference. `drift_df`: its degrees of freedom; infinite for a constant, runs
    less one if estimated from runs. The total degrees of freedom are Welch-Satterthwaite's over the
    three variances, so a drift that outweighs the scatter of the processes also determines how well
    the sum is known. p is that of Student's t. The interval is a bootstrap over processes, with a
    normal draw of the drift in each resample.

    Raise ValueError if a side has no values, a value is not finite and positive, or the drift is
    negative or infinite.
    """
    logs = [_finite(values, "value") for values in (base, new)]
    if any((values <= 0).any() for values in logs):
        raise ValueError("only positive values have a ratio")
    if not drift >= 0 or math.isinf(drift):
        raise ValueError(f"the drift is {drift}, not a finite number from 0 on")
    was, now = (np.log(values) for values in logs)
    center, count = float(now.mean() - was.mean()), min(len(was), len(now))
    if count < 2:
        return Effect(math.exp(center), math.nan, math.nan, math.nan, count)
    parts: list[tuple[float, float]] = [
        (_variance(side) / len(side), len(side) - 1) for side in (was, now)
    ] + [(2 * drift**2, drift_df)]
    variance = sum(part for part, _ in parts)
    squares = sum(part**2 / df for part, df in parts)
    df = variance**2 / squares if squares else math.inf
    rng = np.random.default_rng(seed)
    deviations = math.sqrt(2) * drift * rng.standard_normal(RESAMPLES)
    for sign, side in ((-1, was), (1, now)):
        means = side[rng.integers(len(side), size=(RESAMPLES, len(side)))].mean(axis=1)
        deviations += sign * (means - side.mean()) * math.sqrt(len(side) / (len(side) - 1))
    low, high = _interval(center, deviations, df)
    by_labels = 2 / math.comb(len(was) + len(now), len(was))
    return Effect(math.exp(center), low, high, _p_value(center, variance, df, by_labels), count)


def judge(
    effect: Effect,
    better: str,
    comparisons: int,
    floor: float = FLOOR,
    least: int = 2,
) -> Answer:
    """Return the answer for an effect if `comparisons` are made together.

    Fewer than `least` processes (LEAST_PAIRS for pairs) give "cannot tell". A change needs a ratio
    beyond the floor, an interval that excludes 1, and p below (1 - CONFIDENCE) divided by the
    number of comparisons (Bonferroni: the chance of a single false alarm in all of them). "no
    change" needs the whole interval within the floor. Everything else is "cannot tell". `better`:
    the good direction, "higher" or "lower". With "none" a change is neither good nor bad, so the
    answer is "no change" or "cannot tell".

    Raise ValueError for any other `better`, no comparison, or a negative floor.
    """
    if better not in ("higher", "lower", "none"):
        raise ValueError(f"better is {better!r}, not higher, lower or none")
    if comparisons < 1 or floor < 0:
        raise ValueError("it takes at least one comparison and a floor from 0 on")
    if not effect.known or effect.processes < least:
        return Answer.CANNOT_TELL
    limit = 1 + floor
    if 1 / limit <= effect.low and effect.high <= limit:
        return Answer.NO_CHANGE
    beyond = not 1 / limit <= effect.ratio <= limit
    excluded = effect.low > 1 or effect.high < 1
    rare = effect.p < (1 - CONFIDENCE) / comparisons
    if better == "none" or not (beyond and excluded and rare):
        return Answer.CANNOT_TELL
    return Answer.IMPROVEMENT if (effect.ratio > 1) is (better == "higher") else Answer.REGRESSION


def _finite(values: Values, noun: str) -> np.ndarray:
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all():
        raise ValueError(f"{noun}s must be a sequence of at least one, all finite: {values}")
    return numbers


def location(turns: np.ndarray) -> np.ndarray:
    """Return the interquartile mean over the last axis, or the mean of fewer than four values.

    It equals `scipy.stats.trim_mean`, which takes 16 times as long for so few values.
    """
    cut = int(TRIMMED * turns.shape[-1])
    return np.sort(turns, axis=-1)[..., cut : turns.shape[-1] - cut].mean(axis=-1)


def _variance(values: np.ndarray) -> float:
    """Return the sample variance; exactly 0 if values are equal except for rounding."""
    return float(values.var(ddof=1)) if np.ptp(values) > EQUAL else 0.0


def _p_value(center: float, variance: float, df: float, by_labels: float) -> float:
    """Return the two-sided p-value of Student's t.

    Values without any scatter, such as counts, give t no variance. Then p is `by_labels`: the
    chance that random labels separate equal values like this, the least p that is possible.
    """
    if abs(center) <= EQUAL:
        return 1.0
    if variance == 0:
        return min(1.0, by_labels)
    return float(2 * stdtr(df, -abs(center) / math.sqrt(variance)))


def _interval(center: float, deviations: np.ndarray, df: float) -> tuple[float, float]:
    """Return the 95 % interval of the ratio, from the deviations of the resamples from the center.

    A percentile bootstrap is too narrow for few processes. Deviations are therefore multiplied by
    Student's t over the normal quantile, as those of a mean would need (after Hesterberg, "What
    teachers should know about the bootstrap", The American Statistician 69, 2015, section 5.3). The
    caller, which knows n, applies the other part, n / (n - 1) in the variance.
    """
    tail = (1 - CONFIDENCE) / 2
    stretch = float(stdtrit(df, 1 - tail) / ndtri(1 - tail)) if math.isfinite(df) else 1.0
    ends = center + stretch * np.quantile(deviations, [tail, 1 - tail])
    return float(np.exp(ends[0])), float(np.exp(ends[1]))
