"""By how many times NEW's value is BASE's, how sure that is, and what follows from it.

Everything is done on logarithms, so that BASE and NEW turned round give the inverse. The unit of
evidence is the process, not the turn or step in it: what differs from process to process (memory
layout, placement of threads) does not average out over the steps of one.
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
FAMILY = 1600  # comparisons among which one must not be an alarm
LEAST_PAIRS = 8  # with fewer Student's t does not hold its level, see `judge`
FAR_APART = 2.5  # times what their turns' scatter would give: pairs that differ by more than that
# Of the turns of a pair this part is left out at either end. A quarter at each (the interquartile
# mean) is not moved by a burst of stolen CPU that strikes less than a quarter of the turns, yet has
# 85 % of the mean's efficiency where noise is normal; the median has 65 %, and bootstraps roughly.
TRIMMED = 0.25
RESAMPLES = 4000
CENTRES = 200  # resampled centres of one pair, from which the resamples of all pairs draw
EQUAL = 1e-12  # logarithms closer than this differ by rounding

Values = Sequence[float] | np.ndarray  # one-dimensional


class Answer(str, Enum):
    """What a comparison comes to; the value is its name in every report."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_CHANGE = "no change"
    CANNOT_TELL = "cannot tell"


CHANGED = (Answer.REGRESSION, Answer.IMPROVEMENT)


@dataclass(frozen=True)
class Effect:
    """A ratio NEW/BASE (geometric), its 95 % interval, and the p-value of "no change".

    `low`, `high`, `p` are NaN where unknown: fewer than two processes (a side, or pairs).
    `processes`: pairs of processes; unpaired, those of the side that has fewer.
    """

    ratio: float
    low: float
    high: float
    p: float
    processes: int

    @property
    def known(self) -> bool:
        """Whether there is an interval and a p-value."""
        return not math.isnan(self.p)


def paired(log_ratios: Sequence[Values] | np.ndarray, seed: int = 1) -> Effect:
    """The effect from pairs of processes that took turns; same input, same effect.

    One inner sequence for each pair: logarithms of NEW/BASE of turns next to each other. A pair's
    centre is their interquartile mean, the effect the mean of the centres; p is of Student's t over
    the centres. The interval is a hierarchical bootstrap: pairs first, then the turns within
    (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013), widened for few
    pairs (see `_interval`). Where pairs differ by no more than their turns' noise it is up to 1.4
    times too wide, since that noise is in it twice; where they do differ it is exact.
    Student's t takes centres to be normal. Where processes are either fast or slow it still holds
    its level at 1,600 comparisons from 8 pairs on; 6 give some 15 times too many alarms there.
    ValueError: no pair, a pair without turns, or a number that is not finite.
    """
    pairs = [_finite(turns, "log ratio") for turns in log_ratios]
    if not pairs:
        raise ValueError("there is no pair of processes")
    centres = np.array([_location(turns) for turns in pairs])
    centre, count = float(centres.mean()), len(centres)
    if count < 2:
        return Effect(math.exp(centre), math.nan, math.nan, math.nan, count)
    rng = np.random.default_rng(seed)
    # Drawing from a pool of resampled centres of each pair is the same bootstrap as resampling the
    # turns anew each time, at a hundredth of the work.
    pool = np.array(
        [_location(turns[rng.integers(len(turns), size=(CENTRES, len(turns)))]) for turns in pairs]
    )
    shape = (RESAMPLES, count)
    drawn = rng.integers(count, size=shape), rng.integers(CENTRES, size=shape)
    deviations = (pool[drawn].mean(axis=1) - centre) * math.sqrt(count / (count - 1))
    low, high = _interval(centre, deviations, count - 1)
    p = _p_value(centre, _variance(centres) / count, count - 1, by_labels=2.0 ** (1 - count))
    return Effect(math.exp(centre), low, high, p, count)


def scatter_of_turns(log_ratios: Sequence[np.ndarray], seed: int = 1) -> float:
    """What standard deviation the pairs' centres would have if only turns differed, not processes.

    By bootstrap of ABBA blocks: who has the first of two turns has it by turns, and may profit.
    Blocks are taken as independent of each other, so bursts over several are missed.
    """
    rng = np.random.default_rng(seed)
    variances = []
    for turns in log_ratios:
        blocks = turns[: len(turns) // 2 * 2].reshape(-1, 2)
        drawn = blocks[rng.integers(len(blocks), size=(CENTRES, len(blocks)))]
        variances.append(_location(drawn.reshape(CENTRES, -1)).var(ddof=1))
    return math.sqrt(np.mean(variances))


def far_apart(log_ratios: Sequence[np.ndarray]) -> bool:
    """Whether pairs differ so much more than their turns that further pairs tell more than turns.

    Like `enough`, it looks at how the pairs differ and not at which way.
    """
    if len(log_ratios) < LEAST_PAIRS:
        return False
    centres = np.array([_location(np.asarray(turns)) for turns in log_ratios])
    return math.sqrt(_variance(centres)) > FAR_APART * scatter_of_turns(log_ratios)


def enough(log_ratios: Sequence[np.ndarray]) -> bool:
    """Whether pairs agree so well that twice the floor could be told among FAMILY comparisons.

    So when half of Student's interval, at that level, is no more than the floor. It looks at how
    the pairs differ, not at which way: whoever stops when an effect shows finds one too often.
    """
    if len(log_ratios) < LEAST_PAIRS:
        return False
    centres = np.array([_location(np.asarray(turns)) for turns in log_ratios])
    error = math.sqrt(_variance(centres) / len(centres))
    level = (1 - CONFIDENCE) / FAMILY
    return error * float(stdtrit(len(centres) - 1, 1 - level / 2)) <= math.log1p(FLOOR)


def unpaired(
    base: Values,
    new: Values,
    drift: float = 0.0,
    seed: int = 1,
    drift_df: float = math.inf,
) -> Effect:
    """The effect from positive values, one a process, of two runs; same input, same effect.

    `drift`: standard deviation, as a logarithm, of a run's level from that of another hours apart,
    which no run can see in itself: a random effect, so 2 * drift**2 joins the variance of the
    difference. `drift_df`: the degrees of freedom with which it is known; infinite for a constant,
    runs less one where it was estimated from runs. The degrees of freedom of the whole are Welch's
    and Satterthwaite's over the three variances, so that a drift that outweighs the processes'
    scatter also decides how well the sum is known. p is of Student's t; the interval a bootstrap
    over processes, with a normal draw of the drift in each resample.
    ValueError: a side without values, a value that is not finite and positive, a negative drift.
    """
    logs = [_finite(values, "value") for values in (base, new)]
    if any((values <= 0).any() for values in logs):
        raise ValueError("only positive values have a ratio")
    if not drift >= 0 or math.isinf(drift):
        raise ValueError(f"the drift is {drift}, not a finite number from 0 on")
    was, now = (np.log(values) for values in logs)
    centre, count = float(now.mean() - was.mean()), min(len(was), len(now))
    if count < 2:
        return Effect(math.exp(centre), math.nan, math.nan, math.nan, count)
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
    low, high = _interval(centre, deviations, df)
    by_labels = 2 / math.comb(len(was) + len(now), len(was))
    return Effect(math.exp(centre), low, high, _p_value(centre, variance, df, by_labels), count)


def judge(
    effect: Effect,
    better: str,
    comparisons: int,
    floor: float = FLOOR,
    least: int = 2,
) -> Answer:
    """What an effect means where `comparisons` are made together.

    Nothing can be told from fewer than `least` processes (LEAST_PAIRS of pairs).
    Changed: beyond the floor, and the interval excludes no change, and p below (1 - CONFIDENCE)
    shared among the comparisons (Bonferroni: the chance of a single false alarm in all of them).
    Unchanged: the whole interval within the floor. Neither is known of anything else. `better`:
    which way is good, "higher" or "lower"; of "none" a change is neither good nor bad, so it can
    only be unchanged. ValueError: any other `better`, no comparison, a negative floor.
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


def _finite(values: Values, what: str) -> np.ndarray:
    found = np.asarray(values, dtype=float)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"{what}s must be a sequence of at least one, all finite: {values}")
    return found


def _location(turns: np.ndarray) -> np.ndarray:
    """The interquartile mean over the last axis; of fewer than four values their mean.

    Like `scipy.stats.trim_mean`, which takes 16 times as long for as few values as these.
    """
    cut = int(TRIMMED * turns.shape[-1])
    return np.sort(turns, axis=-1)[..., cut : turns.shape[-1] - cut].mean(axis=-1)


def _variance(values: np.ndarray) -> float:
    """Of the sample; exactly 0 where values are equal but for rounding."""
    return float(values.var(ddof=1)) if np.ptp(values) > EQUAL else 0.0


def _p_value(centre: float, variance: float, df: float, by_labels: float) -> float:
    """Student's t, two-sided.

    Values without any scatter, as of counts, leave t nothing to go by. Then `by_labels`: how often
    labels alone (whose value is which) part equal values like this, which no p may fall below.
    """
    if abs(centre) <= EQUAL:
        return 1.0
    if variance == 0:
        return min(1.0, by_labels)
    return float(2 * stdtr(df, -abs(centre) / math.sqrt(variance)))


def _interval(centre: float, deviations: np.ndarray, df: float) -> tuple[float, float]:
    """The 95 % interval of the ratio, from what the resamples deviate from the centre.

    A percentile bootstrap is too narrow for few processes. So deviations are stretched by Student's
    t over the normal quantile, as those of a mean would need (after Hesterberg, "What teachers
    should know about the bootstrap", The American Statistician 69, 2015, section 5.3; the other
    part, n / (n - 1) in the variance, is the caller's, who knows n).
    """
    tail = (1 - CONFIDENCE) / 2
    stretch = float(stdtrit(df, 1 - tail) / ndtri(1 - tail)) if math.isfinite(df) else 1.0
    ends = centre + stretch * np.quantile(deviations, [tail, 1 - tail])
    return float(np.exp(ends[0])), float(np.exp(ends[1]))
