"""Trials of the gate on recorded noise: rates of false alarms and of detected slowdowns.

Comparisons of identical code are resampled: they have no change, and the noise of the machine with
its bursts and its variance between processes. The trials are repeated with an injected slowdown.
Comparisons that the gate was tuned on prove nothing: use others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.ab import pairs as paired
from reports.ab.pairs import TIME, log_ratios
from reports.core.grouping import grouped
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.rundir import conditions
from reports.rundir.frame import BadInput, RunFrames
from reports.stats import ratio_tests
from reports.stats.intervals import CONFIDENCE
from reports.stats.ratio_tests import CHANGED, Answer

# Injected slowdown of NEW -> required detection rate.
INJECTED: Mapping[float, float] = {0.05: 0.80, 0.10: 0.95}
KEYS = ("run_id", "test", "trainer", "keras", "backend", "workers", "tensorflow", "python")
SLOWER = " % slower"  # suffix in the column `fault` of a side with an injected slowdown
COLUMNS = (
    Column("recorded series"),
    Column("comparisons", right=True),
    Column("pairs", right=True),
    Column("spread of pairs", right=True),
    Column("spread of turns", right=True),
    Column("spread of levels", right=True),
    Column("in hours", right=True),
    Column("resampled", right=True),
    Column("false alarms", right=True),
    *(Column(f"{100 * slowdown:.0f} % detected", right=True) for slowdown in INJECTED),
)
NOTE = (
    "comparisons, pairs: recorded ones, of identical code. spread of pairs: standard deviation of "
    "the pairs' ratios. spread of turns: that standard deviation if only the turns varied, and "
    "processes did not. spread of levels: standard deviation of the base's step time between "
    "comparisons, including those with an injected slowdown. in hours: from the first to the last "
    "of these comparisons. A resampled comparison draws with replacement: its largest number of "
    "pairs, pairs until they agree or that number is reached, and blocks of turns within each "
    "pair. Each pair's sides are swapped at random."
)


@dataclass(frozen=True)
class Comparison:
    """One comparison as measured: log ratios (new to base) of the turns of each pair.

    `name`: the compared case and the machine; `measured`: conditions (see rundir.conditions).
    Comparisons that differ in either have different noise, and are resampled separately.
    `injected`: slowdown of the new side as a fraction of a step; 0 for identical code.
    """

    name: str
    measured: tuple[tuple[str, str], ...]
    injected: float
    pairs: tuple[np.ndarray, ...]
    level_s: float  # of the base's steps, median over all turns
    time: pd.Timestamp

    @property
    def answer(self) -> Answer:
        return _answer(self.pairs)


@dataclass(frozen=True)
class Pool:
    """The pairs of all comparisons of identical code in one setup.

    `max_pairs`: numbers of pairs that fit in the budgets. Comparisons that ended early because
    their pairs agreed do not show that number; they are used only if all comparisons ended early.
    """

    name: str
    comparisons: int
    max_pairs: tuple[int, ...]
    pairs: tuple[np.ndarray, ...]
    levels_s: tuple[float, ...] = ()  # of all comparisons of this setup, slowed ones too
    hours: float = 0.0  # between the first and the last of these comparisons

    def resampled(self, rng: np.random.Generator, shift: float) -> list[np.ndarray]:
        """Draw a new comparison that ends by the same rule as a real one; `shift` is its effect.

        Whole pairs change sides at random, since an effect that favors a process lasts for the
        whole pair. The null hypothesis is therefore exactly true without a shift. Turns are drawn
        in blocks (moving-block bootstrap, Kuensch 1989), since a burst affects several turns in a
        row.
        """
        drawn: list[np.ndarray] = []
        limit = rng.choice(self.max_pairs)
        while len(drawn) < limit and not ratio_tests.enough(drawn):
            turns = self.pairs[rng.integers(len(self.pairs))]
            drawn.append(rng.choice((-1, 1)) * _blocks(turns, rng) + shift)
        return drawn


def _blocks(turns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    count = len(turns)
    length = math.ceil(math.sqrt(count))  # long enough for a burst, with many blocks left
    starts = rng.integers(count - length + 1, size=math.ceil(count / length))
    return turns[(starts[:, None] + np.arange(length)).ravel()[:count]]


@dataclass(frozen=True)
class Trials:
    """Results of one pool: numbers of comparisons drawn, of false alarms and of slowdowns found."""

    pool: Pool
    comparisons: int
    alarms: int
    detected: Mapping[float, int]  # by injected slowdown


def read_comparisons(runs: Sequence[RunFrames]) -> list[Comparison]:
    """Return the comparisons of all runs.

    Raise BadInput for a run without a comparison or with a broken one, and for turns that are not
    in pairs or fewer than 2 pairs.
    """
    found = []
    for run in runs:
        measured = run.measurements.loc[run.measurements["metric"] == TIME]
        rows = paired.ended_well(measured, run.verdicts)
        if len(rows) < len(measured):
            raise BadInput(f"a comparison in {run.directory} failed, so it cannot be resampled")
        if rows.empty:
            raise BadInput(f"{run.directory} has no {TIME}: not a paired comparison")
        for key, part in grouped(rows, KEYS):
            name = _called(key, run.info)
            pairs = tuple(log_ratios(f"{name} of {run.run_id}", part))
            if len(pairs) < 2:
                problem = f"{plural(len(pairs), 'pair')} of processes, at least 2 are needed"
                raise BadInput(f"{name} of {run.run_id}: {problem}")
            level_s = float(part.loc[part["variant"] == "base", "value"].median())
            found.append(
                Comparison(
                    name,
                    tuple(conditions.of(run.info).items()),
                    injected_slowdown(part["fault"]),
                    pairs,
                    level_s,
                    part["time"].min(),
                )
            )
    return found


def _called(key: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Return `single_process · tf_keras 2.21.0, 2 workers, AMD EPYC`."""
    shown, workers = approach(key["trainer"], key["keras"]), int(key["workers"])
    parts = (
        shown,
        f"TensorFlow {key['tensorflow']}" if shown == key["trainer"] else "",
        key["backend"] if key["backend"] != "none" else "",
        plural(workers, "worker") if workers > 1 else "",
        info["machine"].get("cpu"),
    )
    return ", ".join(filter(None, parts))


def injected_slowdown(faults: Iterable[str]) -> float:
    """Return the slowdown that one side of a comparison had, as a fraction; 0 without one."""
    slowed = {fault for fault in faults if fault.endswith(SLOWER)}
    return float(slowed.pop().removesuffix(SLOWER)) / 100 if slowed else 0.0


def pools(found: Iterable[Comparison]) -> list[Pool]:
    """Group the comparisons of identical code by setup; raise BadInput if there are none."""
    alike: dict[Any, list[Comparison]] = {}
    every: dict[Any, list[Comparison]] = {}
    for one in found:
        setup = one.name, one.measured
        every.setdefault(setup, []).append(one)
        if not one.injected:
            alike.setdefault(setup, []).append(one)
    if not alike:
        raise BadInput("none of the comparisons is of identical code")
    return [
        Pool(
            own[0].name,
            len(own),
            _most(own),
            tuple(pair for one in own for pair in one.pairs),
            tuple(one.level_s for one in every[setup]),
            _hours([one.time for one in every[setup]]),
        )
        for setup, own in alike.items()
    ]


def _most(found: Sequence[Comparison]) -> tuple[int, ...]:
    spent = [len(one.pairs) for one in found if not ratio_tests.enough(one.pairs)]
    return tuple(spent) or (max(len(one.pairs) for one in found),)


def _hours(times: Sequence[pd.Timestamp]) -> float:
    return (max(times) - min(times)).total_seconds() / 3600


def run_trials(found: Sequence[Pool], comparisons: int, seed: int) -> list[Trials]:
    """Draw `comparisons` of identical code and as many of each slowdown, spread over the pools."""
    shares = [len(range(i, comparisons, len(found))) for i in range(len(found))]
    return [
        _trials(one, share, np.random.default_rng([seed, i]))
        for i, (one, share) in enumerate(zip(found, shares, strict=True))
    ]


def _trials(pool: Pool, comparisons: int, rng: np.random.Generator) -> Trials:
    def answers(slowdown: float) -> list[Answer]:
        shift = math.log1p(slowdown)
        return [_answer(pool.resampled(rng, shift)) for _ in range(comparisons)]

    alarms = sum(answer in CHANGED for answer in answers(0.0))
    found = {slowdown: answers(slowdown).count(Answer.REGRESSION) for slowdown in INJECTED}
    return Trials(pool, comparisons, alarms, found)


def _answer(pairs: Sequence[np.ndarray]) -> Answer:
    return ratio_tests.judge(
        ratio_tests.paired(pairs), "lower", ratio_tests.FAMILY, least=ratio_tests.LEAST_PAIRS
    )


def table(trials: Sequence[Trials]) -> Table:
    """Return a line for each setup."""
    rows = []
    for one in trials:
        centres = [ratio_tests.paired([turns]).ratio for turns in one.pool.pairs]
        cells = (
            one.pool.name,
            str(one.pool.comparisons),
            str(len(one.pool.pairs)),
            _spread(centres),
            _percent(ratio_tests.scatter_of_turns(one.pool.pairs)),
            _spread(one.pool.levels_s),
            figure(one.pool.hours),
            str(one.comparisons),
            str(one.alarms),
            *(str(one.detected[slowdown]) for slowdown in INJECTED),
        )
        rows.append(Row("", cells))
    return Table("Trials of the gate", COLUMNS, tuple(rows), NOTE)


def _spread(values: Sequence[float]) -> str:
    return _percent(float(np.std(np.log(values), ddof=1))) if len(values) > 1 else MISSING


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def summary(found: Sequence[Comparison], trials: Sequence[Trials]) -> tuple[list[str], bool]:
    """Return the rates in words, with Clopper-Pearson intervals, and True if they are acceptable.

    The rates of the comparisons as measured come first, then those of the resampled ones.
    """
    lines, acceptable = [], True
    for how, same, injected in (
        ("As measured", *_as_measured(found)),
        ("Resampled", *_resampled(trials)),
    ):
        alarms, count = same
        acceptable &= not alarms
        lines.append(f"{how}: false alarms in {_rate(alarms, count)}; none is allowed.")
        for slowdown, (hits, of) in sorted(injected.items()):
            needed = INJECTED.get(slowdown, 0.0)
            acceptable &= hits >= needed * of
            wanted = f"; {100 * needed:.0f} % are needed." if needed else "."
            rate = _rate(hits, of)
            lines.append(f"{how}: slowdown of {100 * slowdown:g} % detected in {rate}{wanted}")
    lines.append(
        f"{'Passed' if acceptable else 'Failed'}: judged among {ratio_tests.FAMILY:,} comparisons, "
        f"floor {100 * ratio_tests.FLOOR:g} %."
    )
    return lines, acceptable


Rate = tuple[int, int]  # count, total


def _as_measured(found: Sequence[Comparison]) -> tuple[Rate, dict[float, Rate]]:
    by_slowdown: dict[float, list[Answer]] = {}
    for one in found:
        by_slowdown.setdefault(one.injected, []).append(one.answer)
    same = by_slowdown.pop(0.0, [])
    alarms = sum(answer in CHANGED for answer in same), len(same)
    injected = {
        slowdown: (answers.count(Answer.REGRESSION), len(answers))
        for slowdown, answers in by_slowdown.items()
    }
    return alarms, injected


def _resampled(trials: Sequence[Trials]) -> tuple[Rate, dict[float, Rate]]:
    count = sum(one.comparisons for one in trials)
    found = {s: (sum(one.detected[s] for one in trials), count) for s in INJECTED}
    return (sum(one.alarms for one in trials), count), found


def _rate(count: int, of: int) -> str:
    if not of:
        return "0 of 0"
    from scipy.stats import binomtest  # slow to import, so imported only here

    ends = binomtest(count, of).proportion_ci(CONFIDENCE, "exact")
    low, high = (f"{100 * end:.3g}" for end in (ends.low, ends.high))
    return f"{count:,} of {of:,} ({100 * count / of:.3g} %, 95 % interval {low} to {high} %)"
