"""How far a run's level lies from that of the same thing hours apart, which no run sees in itself.

Neighbours on a shared machine, its frequency, the order of memory pages after a boot: all
processes of a run have them in common, so no number of processes averages them out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reports.compare.run_groups import Key, Side
from reports.stats.run_levels import DRIFT, RUNS_ENOUGH


@dataclass(frozen=True)
class Drift:
    """Standard deviations as logarithms: for all series, or by unit and by series.

    `df`: degrees of freedom with which they are known. `source`: in words, for the reports.
    """

    usual: float
    df: float
    source: str
    by_unit: Mapping[str, float]
    by_series: Mapping[Key, float]

    def of(self, key: Key, unit: str) -> float:
        """Of one series: what those of its unit have in common, or more where it drifts more."""
        return max(self.by_unit.get(unit, self.usual), self.by_series.get(key, 0.0))


def known(base: Side, given: float | None = None) -> Drift:
    """What is `given` (relative: 0.05), else what the runs of BASE show, else DRIFT."""
    if given is not None:
        return Drift(math.log1p(given), math.inf, "given", {}, {})
    runs = len(base.runs)
    assumed = Drift(math.log1p(DRIFT), math.inf, "assumed of a shared machine", {}, {})
    if runs < RUNS_ENOUGH:
        return assumed
    variances: dict[Key, float] = {}
    units: dict[str, list[float]] = {}
    for key, series in base.series.items():
        if len(series.by_run) == runs and min(series.values) > 0:
            variances[key] = _between(list(series.by_run.values()))
            units.setdefault(series.key["unit"], []).append(variances[key])
    if not variances:
        return assumed
    by_unit = {unit: _root(float(np.mean(listed))) for unit, listed in units.items()}
    by_series = {key: _root(variance) for key, variance in variances.items()}
    # The runs less one, however many the series: what moves a run moves all of them together.
    return Drift(max(by_unit.values()), runs - 1, f"of {runs} runs of BASE", by_unit, by_series)


def of_means(drift: float, base_runs: int, new_runs: int) -> float:
    """The drift that `effects.unpaired` takes for two single runs, for means over several runs."""
    return drift * math.sqrt((1 / base_runs + 1 / new_runs) / 2)


def _between(runs: Sequence[Sequence[float]]) -> float:
    """Variance of the runs' levels, less what their processes' scatter gives their means.

    May be negative by chance, so that the mean over many series is not above the truth.
    """
    logs = [np.log(values) for values in runs]
    scatter = [values.var(ddof=1) / len(values) if len(values) > 1 else 0.0 for values in logs]
    return float(np.var([values.mean() for values in logs], ddof=1) - np.mean(scatter))


def _root(variance: float) -> float:
    return math.sqrt(max(variance, 0.0))
