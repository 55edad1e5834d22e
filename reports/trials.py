"""Whether the gate cries wolf, and what it finds, on recorded noise.

Resamples comparisons of identical code so that nothing has changed for certain while the noise is
that of the machine, with its bursts and what differs from process to process; then the same with
a slowdown put in. Records that the gate was tuned on prove nothing: name only others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports import effects
from reports.compare import CHANGED
from reports.conformance import approach
from reports.effects import Answer
from reports.frame import BadInput, RunFrames
from reports.groups import grouped
from reports.sides import PAIRED
from reports.statistics import CONFIDENCE
from reports.table import Column, Row, Table
from reports.text import plural

FAMILY = 1600  # comparisons that one of them is judged among
# Slowdown of NEW and the part of such comparisons in which it has to be found.
PLANTED: Mapping[float, float] = {0.05: 0.80, 0.10: 0.95}
KEYS = ("test", "trainer", "keras", "backend", "workers")
SIDES = ("base", "new")
COLUMNS = (
    Column("recorded series"),
    Column("pairs", right=True),
    Column("turns", right=True),
    Column("pairs differ by", right=True),
    Column("compared", right=True),
    Column("alarms", right=True),
    *(Column(f"{100 * slowdown:.0f} % found", right=True) for slowdown in PLANTED),
)
NOTE = (
    "turns: of all pairs. pairs differ by: standard deviation of the pairs' ratios. Drawn with "
    "replacement: pairs, and blocks of turns within them; which side is NEW by lot."
)


@dataclass(frozen=True)
class Recorded:
    """Turns that two processes of identical code took next to each other, pair by pair."""

    name: str
    pairs: tuple[np.ndarray, ...]  # of each its turns' log ratios, new to base, in order

    def resampled(self, rng: np.random.Generator) -> list[np.ndarray]:
        """As many pairs and turns as were recorded, drawn anew; its null is exactly true.

        Whole pairs change sides by lot, since what favours a process lasts as long as it does.
        Turns come in blocks (moving-block bootstrap, Kuensch 1989), since a burst strikes several
        in a row.
        """
        drawn = (self.pairs[i] for i in rng.integers(len(self.pairs), size=len(self.pairs)))
        return [rng.choice((-1, 1)) * _blocks(turns, rng) for turns in drawn]


def _blocks(turns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    count = len(turns)
    length = math.ceil(math.sqrt(count))  # long enough for a burst, and still many of them
    starts = rng.integers(count - length + 1, size=math.ceil(count / length))
    return turns[(starts[:, None] + np.arange(length)).ravel()[:count]]


@dataclass(frozen=True)
class Trials:
    """Of one recorded series: how many comparisons, and in how many something was found."""

    series: Recorded
    as_recorded: bool  # whether the records themselves are an alarm: not of identical code?
    comparisons: int
    alarms: int
    found: Mapping[float, int]  # by the slowdown that was put in


def recorded(runs: Sequence[RunFrames]) -> list[Recorded]:
    """The series of all runs; BadInput where there is none, or one is not in pairs."""
    found = []
    for run in runs:
        rows = run.measurements.loc[run.measurements["metric"] == PAIRED]
        if rows.empty:
            raise BadInput(f"{run.directory} holds no {PAIRED}: not records of a paired comparison")
        for key, part in grouped(rows, KEYS):
            name = ", ".join(
                name
                for name in (
                    approach(key["trainer"], key["keras"]),
                    key["backend"] if key["backend"] != "none" else "",
                    run.run_id,
                )
                if name
            )
            found.append(Recorded(name, tuple(_pairs(name, part.to_dict("records")))))
    return found


def _pairs(name: str, rows: Iterable[Mapping[Any, Any]]) -> Iterator[np.ndarray]:
    times: dict[Any, dict[str, list[float]]] = {}
    for row in rows:
        if row["variant"] not in SIDES or not row["value"] > 0:
            told = f"variant {row['variant']!r} and value {row['value']:g}"
            raise BadInput(f"{name}: a turn has {told}, not base or new and more than 0 s")
        sides = times.setdefault(row["repeat"], {side: [] for side in SIDES})
        sides[row["variant"]].append(row["value"])
    if len(times) < 2:
        raise BadInput(f"{name}: {plural(len(times), 'pair')} of processes, at least 2 are needed")
    for repeat, sides in times.items():
        # The time that was given to a pair may end between a turn and its neighbour's.
        turns = min(map(len, sides.values()))
        if not turns:
            raise BadInput(f"{name}: pair {repeat} has turns of one side only")
        base, new = (np.log(sides[side][:turns]) for side in SIDES)
        yield new - base


def run_trials(series: Sequence[Recorded], comparisons: int, seed: int) -> list[Trials]:
    """`comparisons` of identical code and as many of each slowdown, dealt out over the series."""
    shares = [len(range(i, comparisons, len(series))) for i in range(len(series))]
    return [
        _trials(one, share, np.random.default_rng([seed, i]))
        for i, (one, share) in enumerate(zip(series, shares, strict=True))
    ]


def _trials(series: Recorded, comparisons: int, rng: np.random.Generator) -> Trials:
    def answers(slowdown: float) -> list[Answer]:
        shift = math.log1p(slowdown)
        return [
            _answer([turns + shift for turns in series.resampled(rng)]) for _ in range(comparisons)
        ]

    alarms = sum(answer in CHANGED for answer in answers(0.0))
    found = {slowdown: answers(slowdown).count(Answer.REGRESSION) for slowdown in PLANTED}
    return Trials(series, _answer(series.pairs) in CHANGED, comparisons, alarms, found)


def _answer(pairs: Sequence[np.ndarray]) -> Answer:
    return effects.judge(effects.paired(pairs), "lower", FAMILY)


def table(trials: Sequence[Trials]) -> Table:
    """A line for each recorded series."""
    rows = []
    for one in trials:
        centres = [effects.paired([turns]).ratio for turns in one.series.pairs]
        cells = (
            one.series.name,
            str(len(one.series.pairs)),
            str(sum(map(len, one.series.pairs))),
            f"{100 * np.std(np.log(centres), ddof=1):.2g} %",
            str(one.comparisons),
            str(one.alarms),
            *(str(one.found[slowdown]) for slowdown in PLANTED),
        )
        rows.append(Row("", cells))
    return Table("Trials of the gate", COLUMNS, tuple(rows), NOTE)


def summary(trials: Sequence[Trials]) -> tuple[list[str], bool]:
    """The rates in words, with Clopper and Pearson's interval, and whether they are good enough."""
    count = sum(one.comparisons for one in trials)
    alarms = sum(one.alarms for one in trials)
    changed = sum(one.as_recorded for one in trials)
    lines = [
        f"As recorded: alarms in {changed} of {len(trials)} series; none is allowed.",
        f"Resampled: alarms in {_rate(alarms, count)}; none is allowed.",
    ]
    stands = alarms + changed == 0
    for slowdown, needed in PLANTED.items():
        found = sum(one.found[slowdown] for one in trials)
        stands &= found >= needed * count
        lines.append(
            f"Slower by {100 * slowdown:.0f} %: found in {_rate(found, count)}; "
            f"{100 * needed:.0f} % are needed."
        )
    lines.append(
        f"{'Stands' if stands else 'Falls'}: judged among {FAMILY:,} comparisons, floor "
        f"{100 * effects.FLOOR:g} %, {len(trials)} recorded series."
    )
    return lines, stands


def _rate(count: int, of: int) -> str:
    from scipy.stats import binomtest  # takes longer to import than the other reports

    ends = binomtest(count, of).proportion_ci(CONFIDENCE, "exact")
    low, high = (f"{100 * end:.3g}" for end in (ends.low, ends.high))
    return f"{count:,} of {of:,} ({100 * count / of:.3g} %, 95 % interval {low} to {high} %)"
