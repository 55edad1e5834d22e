"""The gate: compare NEW with BASE and detect regressions in numbers and in verdicts.

There are four answers, since "no regression was found" differs from "no data". A change, for better
or worse, must exceed the noise of processes and runs and be significant among all comparisons made
together. "no change" has to be shown as well. Every other result is "cannot tell".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from reports.ab import ratios
from reports.compare import run_drift as drifts
from reports.compare.run_drift import Drift
from reports.compare.run_groups import Key, Series, Side, TestVerdicts
from reports.core.text import plural
from reports.core.verdicts import BY_NAME
from reports.rundir.frame import BadInput
from reports.stats import counts, ratio_tests
from reports.stats.counts import COUNTS, VERSIONS
from reports.stats.ratio_tests import CHANGED, Answer, Effect


@dataclass(frozen=True)
class SeriesAnswer:
    """One series of BASE and the same series of NEW; `reason` explains an answer of "cannot tell".

    `base`, `new`: geometric mean over processes; None if the series is missing.
    """

    key: Mapping[str, Any]
    answer: Answer
    reason: str = ""
    collectives: tuple[str, str] = ("", "")
    base: float | None = None
    new: float | None = None
    processes: tuple[int, int] = (0, 0)
    effect: Effect | None = None


@dataclass(frozen=True)
class TestAnswer:
    """Verdicts of a test in BASE and NEW; `reason`: of "cannot tell", or of NEW's verdict."""

    test: str
    answer: Answer
    base: str = ""
    new: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """All compared series and tests, and the settings; no series or test of BASE is omitted."""

    base: Side
    new: Side
    confirm: Side | None
    floor: float
    drift: Drift
    comparisons: int  # number of series with known scatter, all judged together
    series: tuple[SeriesAnswer, ...]
    tests: tuple[TestAnswer, ...]
    new_series: tuple[Mapping[str, Any], ...]  # only in NEW
    new_tests: tuple[str, ...]  # only in NEW
    numbers: bool  # True if numbers were requested, not only verdicts

    @property
    def answers(self) -> list[Answer]:
        return [item.answer for item in (*self.series, *self.tests)]

    @property
    def ratio_drift(self) -> float | None:
        """Return the drift of ratios to a base, as a logarithm; None if none was compared."""
        if all(item.key["metric"] != ratios.RATIO for item in self.series):
            return None
        return _ratio_drift(self.base, self.new)

    @property
    def same_machine(self) -> bool:
        return len({side.machine for side in (self.base, self.new, self.confirm) if side}) == 1

    @property
    def why_no_number(self) -> str:
        """Return the most frequent reason why no number could be compared.

        Return "" if a number was compared or no number was requested.
        """
        compared = any(item.answer is not Answer.CANNOT_TELL for item in self.series)
        if not self.numbers or self.comparisons or not self.series or compared:
            return ""
        ((reason, _),) = Counter(item.reason for item in self.series).most_common(1)
        return reason

    def exit_code(self, strict: bool = False) -> int:
        """Return the exit code of the command.

        1: a regression. 2: numbers were requested but none could be compared. 3: with `strict`, an
        answer is "cannot tell". 0: otherwise.
        """
        if Answer.REGRESSION in self.answers:
            return 1
        if self.why_no_number:
            return 2
        return 3 if strict and Answer.CANNOT_TELL in self.answers else 0


def compare(
    base: Side,
    new: Side,
    confirm: Side | None = None,
    *,
    floor: float = ratio_tests.FLOOR,
    drift: float | None = None,
    numbers: bool = True,
) -> Comparison:
    """Compare NEW with BASE.

    `confirm`: a second measurement of NEW; a change counts only if both have the same answer.
    `floor`, `drift`: relative (0.02 is 2 %). Without `drift` the value of `run_drift.known` is
    used. Without `numbers` only verdicts are compared.

    Raise BadInput if a run is on two sides, `confirm` is not a second measurement of NEW, BASE and
    NEW have nothing in common, or `numbers` are requested and no series is in both.
    """
    _refuse_the_same([side for side in (base, new, confirm) if side])
    if confirm:
        _refuse_another(new, confirm)
    if not numbers:
        base, new = base.without_numbers(), new.without_numbers()
    drift_estimate = drifts.estimate(base, drift)
    series, comparisons = _series(base, new, confirm, drift_estimate, floor)
    tests = _tests(base, new, confirm)
    comparison = Comparison(
        base,
        new,
        confirm,
        floor,
        drift_estimate,
        comparisons,
        tuple(series),
        tuple(tests),
        tuple(new.series[key].key for key in new.series if key not in base.series),
        tuple(new.tests[key].test for key in new.tests if key not in base.tests),
        numbers,
    )
    _refuse_nothing(comparison, numbers)
    return comparison


def counted(base: Side, new: Side) -> list[SeriesAnswer]:
    """Return the answers for numbers of a step that are counted, of series that both sides have."""
    return [
        _counted(key, base, new)
        for key, series in base.series.items()
        if key in new.series and exact_count(str(series.key["metric"]))
    ]


def _refuse_the_same(listed: Sequence[Side]) -> None:
    seen: set[str] = set()
    for side in listed:
        twice = seen & set(side.run_ids)
        if twice:
            raise BadInput(f"run {min(twice)!r} is on two sides: compare different runs")
        seen |= set(side.run_ids)


def _refuse_another(new: Side, confirm: Side) -> None:
    """Raise BadInput if `confirm` has other versions, machine or conditions than NEW."""
    differences = "; ".join(
        f"{name} {was} → {now}"
        for name, was, now in (
            ("versions", new.versions, confirm.versions),
            ("machine", new.machine, confirm.machine),
        )
        if was != now
    )
    differences = differences or new.differing_conditions(confirm)
    if differences:
        raise BadInput(f"--confirm: not a second measurement of NEW: {differences}")


def _refuse_nothing(comparison: Comparison, numbers: bool) -> None:
    common = set(comparison.base.series) & set(comparison.new.series)
    if numbers and not common and Answer.REGRESSION not in comparison.answers:
        raise BadInput(
            "BASE and NEW have no series of numbers in common: BASE has "
            f"{len(comparison.base.series)} series, NEW {len(comparison.new.series)}; measure the "
            "same tests in both, without -n, or use --verdicts"
        )
    if not common and not set(comparison.base.tests) & set(comparison.new.tests):
        raise BadInput("BASE and NEW have no test and no number in common")


def _series(
    base: Side, new: Side, confirm: Side | None, drift: Drift, floor: float
) -> tuple[list[SeriesAnswer], int]:
    """Return the answers and the number of comparisons that are corrected for."""
    pairs = {key: _pair(key, base, new, drift) for key in base.series}
    with_scatter = [pair for pair in pairs.values() if pair.effect and pair.effect.known]
    comparisons = len(with_scatter)

    def judge(pair: SeriesAnswer) -> SeriesAnswer:
        if pair.reason or pair.effect is None:
            return pair
        # Ratios are compared again with each run of a history, so fewer may be false alarms.
        strictness = ratios.STRICTNESS if pair.key["metric"] == ratios.RATIO else 1
        number = comparisons * strictness
        answer = ratio_tests.judge(pair.effect, pair.key["better"], number, floor)
        is_certain = answer is not Answer.CANNOT_TELL
        reason = "" if is_certain else _why_not(pair.effect, comparisons, floor)
        return replace(pair, answer=answer, reason=reason)

    answers = []
    for key, pair in pairs.items():
        first = judge(pair)
        if confirm and first.answer in CHANGED:
            again = judge(_pair(key, base, confirm, drift))
            if again.answer is not first.answer:
                reason = f"{first.answer.value}, {_not_shown(key in confirm.series)}"
                first = replace(first, answer=Answer.CANNOT_TELL, reason=reason)
        answers.append(first)
    return answers, comparisons


def _pair(key: Key, base: Side, new: Side, drift: Drift) -> SeriesAnswer:
    """Return a series of both sides with its effect, or with the reason why it has none."""
    was, now = base.series[key], new.series.get(key)
    if now is None:
        return SeriesAnswer(
            was.key,
            Answer.CANNOT_TELL,
            "not in NEW",
            (_collective(was), ""),
            _center(was.values),
            processes=(len(was.values), 0),
        )
    if exact_count(str(now.key["metric"])):
        return _counted(key, base, new)
    pair = _both(was, now)
    if base.machine != new.machine:
        return replace(pair, reason="different machine or number of processors")
    differences = base.differing_conditions(new)
    if differences:
        return replace(pair, reason=f"different conditions: {differences}")
    if was.collectives != now.collectives:
        names = " → ".join(collective or "none" for collective in pair.collectives)
        return replace(pair, reason=f"different collective: {names}")
    values = was.values, now.values
    if not any(map(any, values)):
        values = tuple([1.0] * len(zeros) for zeros in values)  # all are 0: ratio 1
    if min(map(min, values)) <= 0:
        return replace(pair, reason="no ratio: a value is not positive")
    if now.key["metric"] == ratios.RATIO:
        between, df = _ratio_drift(base, new), math.inf
    else:
        between, df = drift.of(key, was.key["unit"]), drift.df
    spread = drifts.of_means(between, len(was.by_run), len(now.by_run))
    effect = ratio_tests.unpaired(*values, drift=spread, drift_df=df)
    reason = "" if effect.known else "one process on a side: unknown scatter"
    return replace(pair, effect=effect, reason=reason)


def _ratio_drift(base: Side, new: Side) -> float:
    return ratios.drift(pd.concat([base.controls, new.controls]))


def exact_count(metric: str) -> bool:
    """Return True for a number of a step that is counted, so that any difference is a change."""
    return metric in COUNTS and COUNTS[metric].exact


def _both(was: Series, now: Series) -> SeriesAnswer:
    """Return a series of both sides without an answer yet."""
    return SeriesAnswer(
        now.key,
        Answer.CANNOT_TELL,
        "",
        (_collective(was), _collective(now)),
        _center(was.values),
        _center(now.values),
        (len(was.values), len(now.values)),
    )


def _counted(key: Key, base: Side, new: Side) -> SeriesAnswer:
    """Compare a count of both sides; it depends neither on the machine nor on the conditions."""
    was, now = base.series[key], new.series[key]
    count = COUNTS[str(now.key["metric"])]
    other_versions = VERSIONS if base.versions != new.versions else ()
    found = counts.expected(count, counts.judge(count, was.values, now.values), other_versions)
    return replace(
        _both(was, now), answer=found.answer, reason=found.reason, base=found.base, new=found.new
    )


def _collective(series: Series) -> str:
    return ", ".join(series.collectives)


def _center(values: Sequence[float]) -> float:
    if min(values) <= 0:
        return float(np.median(values))
    return float(np.exp(np.mean(np.log(values))))


def _why_not(effect: Effect, comparisons: int, floor: float) -> str:
    """Return the first condition of a change that does not hold."""
    if effect.low <= 1 <= effect.high:
        return "too noisy"
    if 1 / (1 + floor) <= effect.ratio <= 1 + floor:
        return f"within the floor of {100 * floor:.3g} %"
    return f"not significant among {plural(comparisons, 'comparison')}"


def _tests(base: Side, new: Side, confirm: Side | None) -> Iterable[TestAnswer]:
    for key, was in base.tests.items():
        now = new.tests.get(key)
        if now is None:
            yield TestAnswer(
                was.test, Answer.CANNOT_TELL, was.words, "", f"not in NEW, {was.words} in BASE"
            )
            continue
        answer, reason = _verdict(was, now)
        if confirm and answer in CHANGED:
            again = confirm.tests.get(key)
            if again is None or _verdict(was, again)[0] is not answer:
                reason = f"{answer.value}, {_not_shown(again is not None)}"
                answer = Answer.CANNOT_TELL
        yield TestAnswer(now.test, answer, was.words, now.words, reason)


def _not_shown(measured: bool) -> str:
    return f"which the confirming run {'does not show' if measured else 'did not measure'}"


def _verdict(was: TestVerdicts, now: TestVerdicts) -> tuple[Answer, str]:
    """Judge a verdict: newly red is a regression, newly passed an improvement.

    An excused verdict (known deviation, unsupported) is not red. A change to an excused verdict is
    "cannot tell": the reason reports it, and people decide whether it is worse.
    """
    before, after = ({BY_NAME[name].red for name in side.verdicts} for side in (was, now))
    if before == {False} and after == {True}:
        return Answer.REGRESSION, now.reason
    if len(was.verdicts) > 1 or len(now.verdicts) > 1:
        return Answer.CANNOT_TELL, "verdicts differ between runs of one side"
    if was.verdicts == now.verdicts or after == {True}:
        return Answer.NO_CHANGE, ""
    if now.verdicts == ("passed",):
        return Answer.IMPROVEMENT, ""
    return Answer.CANNOT_TELL, f"{was.words} in BASE, {now.words} in NEW"
