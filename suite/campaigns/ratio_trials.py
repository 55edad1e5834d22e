"""Trials of ratios to a frozen side on recorded runs: each run is compared with each later one.

A comparison of two runs of identical code has no change; a run with an injected slowdown is one
that the base does not have. Runs take part in many comparisons, so the intervals of the rates are a
bootstrap over runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from reports.ab import pairs, ratios
from reports.compare import gate, run_groups
from reports.compare.run_groups import Side
from reports.core.table import Column, Row, Table
from reports.core.text import plural
from reports.rundir.frame import BadInput, RunFrames
from reports.stats.ratio_tests import CHANGED, Answer
from suite.campaigns.gate_trials import INJECTED, injected_slowdown

RESAMPLES = 500
MOST_ALARMS = 0.01  # of the comparisons of identical code
COLUMNS = (
    Column("recorded runs"),
    Column("injected"),
    Column("comparisons", right=True),
    Column("hours apart", right=True),
    Column("slower", right=True),
    Column("faster", right=True),
    Column("share (95 %)", right=True),
)
NOTE = (
    "comparisons: of each run of identical code with each other run of the same machine. slower, "
    "faster: answers of `python -m reports compare` for the ratio to the base. share: of both "
    "without an injected slowdown, which are false alarms; of slower with one, which are found. "
    "Its interval is a bootstrap over runs."
)


@dataclass(frozen=True)
class Trial:
    """Comparisons of runs without a slowdown with runs of one injected slowdown (0: without).

    `answers`: [base runs, new runs] of object; None where runs are not compared.
    """

    machine: str
    injected: float
    answers: np.ndarray
    hours: float

    @property
    def counts(self) -> Counter[Answer]:
        return Counter(answer for answer in self.answers.flat if answer is not None)

    @property
    def share(self) -> float:
        return _share(self.answers, self.injected)

    def interval(self, seed: int = 1) -> tuple[float, float]:
        """Return the 95 % interval of the share."""
        rng = np.random.default_rng(seed)
        rows, columns = self.answers.shape
        drawn = []
        for _ in range(RESAMPLES):
            first = rng.integers(rows, size=rows)
            second = rng.integers(columns, size=columns) if self.injected else first
            share = _share(self.answers[np.ix_(first, second)], self.injected)
            drawn += [] if math.isnan(share) else [share]
        if not drawn:
            return math.nan, math.nan
        return float(np.percentile(drawn, 2.5)), float(np.percentile(drawn, 97.5))


def _share(answers: np.ndarray, injected: float) -> float:
    """Return the share of the compared pairs of runs that found a change; NaN without any."""
    compared = [answer for answer in answers.flat if answer is not None]
    wanted = (Answer.REGRESSION,) if injected else CHANGED
    return sum(answer in wanted for answer in compared) / len(compared) if compared else math.nan


def run_trials(runs: Sequence[RunFrames]) -> list[Trial]:
    """Compare all pairs of runs; raise BadInput if fewer than two have identical code."""
    by_machine: dict[str, dict[float, list[Side]]] = {}
    for run in runs:
        side, injected = _side(run)
        by_machine.setdefault(side.machine, {}).setdefault(injected, []).append(side)
    trials = []
    for machine, groups in sorted(by_machine.items()):
        clean = groups.get(0.0, [])
        if len(clean) > 1:
            trials += [_trial(machine, inj, clean, groups[inj]) for inj in sorted(groups)]
    if not trials:
        raise BadInput("fewer than two runs of one machine compare identical code")
    return trials


def _side(run: RunFrames) -> tuple[Side, float]:
    """Return a run as a side, and its injected slowdown, which is not part of the series' names."""
    timed = run.measurements["metric"] == pairs.TIME
    injected = injected_slowdown(run.measurements.loc[timed, "fault"].fillna(""))
    same_name = replace(run, measurements=run.measurements.assign(fault=""))
    return run_groups.combine([same_name]), injected


def _trial(machine: str, injected: float, base: Sequence[Side], new: Sequence[Side]) -> Trial:
    answers = np.full((len(base), len(new)), None, dtype=object)
    for i, one in enumerate(base):
        for j, other in enumerate(new):
            if injected or i < j:
                answers[i, j] = _answer(one, other)
    times = [pd.Timestamp(side.runs[0].info["start"]) for side in (*base, *new)]
    hours = (max(times) - min(times)).total_seconds() / 3600
    return Trial(machine, injected, answers, hours)


def _answer(base: Side, new: Side) -> Answer | None:
    """Return the answer for the ratio of two runs; None if they have no ratio in common."""
    for one in gate.compare(base, new).series:
        if one.key["metric"] == ratios.RATIO:
            return one.answer
    return None


def acceptable(trials: Sequence[Trial]) -> bool:
    """Return True if there are few false alarms, and slowdowns are found as gate_trials asks."""
    return all(
        trial.share >= INJECTED[trial.injected] if trial.injected else trial.share <= MOST_ALARMS
        for trial in trials
    )


def table(trials: Sequence[Trial]) -> Table:
    """Return a line for each machine and injected slowdown."""
    rows = []
    for trial in trials:
        low, high = trial.interval()
        cells = (
            plural(len(trial.answers), "run"),
            f"{100 * trial.injected:g} %" if trial.injected else "nothing",
            f"{trial.counts.total():,}",
            f"up to {trial.hours:.1f}",
            f"{trial.counts[Answer.REGRESSION]:,}",
            f"{trial.counts[Answer.IMPROVEMENT]:,}",
            f"{100 * trial.share:.1f} % ({100 * low:.1f} to {100 * high:.1f})",
        )
        rows.append(Row(trial.machine, cells))
    return Table("Ratios to a frozen side", COLUMNS, tuple(rows), NOTE)
