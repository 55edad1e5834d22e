"""Numbers about a step that do not depend on time, and the comparison of two sides by them.

Operations, collectives and traces are counted, so any difference is a change. Bytes sent and memory
have a spread: acknowledgements and heartbeats are in the first, buffers in the second. There a
change must exceed a least difference and be significant among all comparisons made together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from reports.core.table import Column
from reports.core.text import figure
from reports.stats.intervals import CONFIDENCE
from reports.stats.ratio_tests import CHANGED, Answer, Values

LEAST_PROCESSES = 5  # of each side, for a number with a spread


# Differences between the sides with which a number may differ as well.
PROGRAMS = frozenset({"trainer", "workers"})
VERSIONS = frozenset({"tensorflow", "keras"})


@dataclass(frozen=True)
class Count:
    """A number of a step: `words` for tables, and the least difference that counts.

    `share`: of the base's mean; `least`: in the number's own unit. Without both it is exact.
    `depends_on`: a difference of the sides in one of these explains a difference of the number.
    """

    words: str
    share: float = 0.0
    least: float = 0.0
    depends_on: frozenset[str] = PROGRAMS

    @property
    def exact(self) -> bool:
        return not (self.share or self.least)


PER_COLLECTIVE = "wire_bytes_per_collective"  # of two counts, so it is shown and not compared
COUNTS: Mapping[str, Count] = {
    "step_operations": Count("operations", depends_on=PROGRAMS | VERSIONS),
    "step_collectives": Count("collectives"),
    "step_collective_bytes": Count("bytes in collectives"),
    "retracings": Count("retracings"),
    "wire_bytes_per_step": Count("bytes sent", share=0.01),
    "heap_growth_bytes_per_step": Count("bytes that the heap grows", least=16_384),
}


COLUMNS = (
    Column("number of a step"),
    Column("base → new"),
    Column("difference (95 %)"),
    Column("answer"),
)
NOTE = (
    "Of one task, but bytes sent: those of all tasks. Operations, collectives, their bytes and "
    "retracings are counted, so any difference is a change. A change of the bytes sent counts from "
    f"{100 * COUNTS['wire_bytes_per_step'].share:g} % on, and of the growth of the heap from "
    f"{COUNTS['heap_growth_bytes_per_step'].least / 1024:g} KiB a step on, if it is significant "
    "among all comparisons."
)


@dataclass(frozen=True)
class Difference:
    """The answer for one number of two sides: means, and the interval of new less base.

    `low`, `high` are at the confidence of a single comparison; equal for exact numbers, NaN if
    unknown. `reason`: of "cannot tell".
    """

    answer: Answer
    base: float
    new: float
    low: float
    high: float
    reason: str = ""


def judge(count: Count, base: Values, new: Values, comparisons: int = 1) -> Difference:
    """Compare the numbers of two sides, one per process; more is worse.

    `comparisons`: made together, for which the significance is corrected (Bonferroni). Raise
    ValueError if a side has no number.
    """
    if not len(base) or not len(new):
        raise ValueError("a side has no number")
    return _exact(base, new) if count.exact else _spread(count, base, new, comparisons)


def expected(count: Count, found: Difference, differing: Iterable[str]) -> Difference:
    """Return "cannot tell" for a change that another difference between the sides explains."""
    causes = sorted(count.depends_on & frozenset(differing))
    if found.answer not in CHANGED or not causes:
        return found
    reason = f"the sides differ in {' and '.join(causes)}"
    return replace(found, answer=Answer.CANNOT_TELL, reason=reason)


def _exact(base: Values, new: Values) -> Difference:
    was, now = float(np.mean(base)), float(np.mean(new))
    if len(set(base)) > 1 or len(set(new)) > 1:
        reason = "differs between processes of one side"
        return Difference(Answer.CANNOT_TELL, was, now, math.nan, math.nan, reason)
    return Difference(_direction(now - was), was, now, now - was, now - was)


def _direction(difference: float) -> Answer:
    if difference == 0:
        return Answer.NO_CHANGE
    return Answer.REGRESSION if difference > 0 else Answer.IMPROVEMENT


def _spread(count: Count, base: Values, new: Values, comparisons: int) -> Difference:
    """Use the interval of Welch for the difference of two means."""
    was, now = float(np.mean(base)), float(np.mean(new))
    floor = max(count.least, count.share * abs(was))
    if min(len(base), len(new)) < LEAST_PROCESSES:
        reason = f"fewer than {LEAST_PROCESSES} processes on a side"
        return Difference(Answer.CANNOT_TELL, was, now, math.nan, math.nan, reason)
    difference, (error, df) = now - was, _error(base, new)
    half, corrected = (
        error * float(stdtrit(df, 1 - (1 - CONFIDENCE) / 2 / n)) for n in (1, comparisons)
    )
    low, high = difference - half, difference + half
    if abs(difference) > max(floor, corrected):
        return Difference(_direction(difference), was, now, low, high)
    if -floor <= low and high <= floor:
        return Difference(Answer.NO_CHANGE, was, now, low, high)
    reason = "too much spread" if abs(difference) <= corrected else "within the least difference"
    return Difference(Answer.CANNOT_TELL, was, now, low, high, reason)


def _error(base: Values, new: Values) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom."""
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (base, new)]
    total = sum(parts)
    if total == 0:
        return 0.0, 1.0
    df = total**2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (base, new), strict=True))
    return math.sqrt(total), df


def amount(value: float) -> str:
    """Format a number of a step: whole numbers, and all from 1,000 on, without decimals."""
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= 1000 else figure(value)


def cells(name: str, found: Difference) -> tuple[str, ...]:
    """Return the cells of COLUMNS for one number."""
    difference = amount(found.new - found.base)
    if found.low < found.high:
        difference += f" ({amount(found.low)} to {amount(found.high)})"
    answer = f"{found.answer.value}: {found.reason}" if found.reason else found.answer.value
    sides = f"{amount(found.base)} → {amount(found.new)}"
    return COUNTS[name].words, sides, difference, answer
