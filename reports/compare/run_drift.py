"""Run-to-run drift: variance of the level between runs hours apart, which no single run can show.

Causes are neighbors on a shared machine, its frequency, and the order of memory pages after a boot.
All processes of a run share them, so no number of processes averages them out.
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
    """Standard deviations as logarithms: for all series, by unit and by series.

    `df`: degrees of freedom of the estimate. `source`: its origin in words, for the reports.
    """

    usual: float
    df: float
    source: str
    by_unit: Mapping[str, float]
    by_series: Mapping[Key, float]

    def of(self, key: Key, unit: str) -> float:
        """Return the drift of one series: that of its unit, or its own if it is larger."""
        return max(self.by_unit.get(unit, self.usual), self.by_series.get(key, 0.0))


def estimate(base: Side, stated: float | None = None) -> Drift:
    """Return the `given` drift (relative: 0.05), else that of BASE's runs, else DRIFT."""
    if stated is not None:
        return Drift(math.log1p(stated), math.inf, "from --drift", {}, {})
    runs = len(base.runs)
    assumed = Drift(math.log1p(DRIFT), math.inf, "assumed for a shared machine", {}, {})
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
    by_unit = {unit: _root(float(np.mean(values))) for unit, values in units.items()}
    by_series = {key: _root(variance) for key, variance in variances.items()}
    # The runs less one, however many the series: a run's drift affects all its series together.
    return Drift(
        max(by_unit.values()), runs - 1, f"estimated from {runs} runs of BASE", by_unit, by_series
    )


def of_means(drift: float, base_runs: int, new_runs: int) -> float:
    """Scale the drift, which `ratio_tests.unpaired` takes for single runs, to means over runs."""
    return drift * math.sqrt((1 / base_runs + 1 / new_runs) / 2)


def _between(runs: Sequence[Sequence[float]]) -> float:
    """Return the variance of the runs' levels, less the part that the processes' scatter explains.

    The result may be negative by chance, so that the mean over many series is unbiased.
    """
    logs = [np.log(values) for values in runs]
    scatter = [values.var(ddof=1) / len(values) if len(values) > 1 else 0.0 for values in logs]
    return float(np.var([values.mean() for values in logs], ddof=1) - np.mean(scatter))


def _root(variance: float) -> float:
    return math.sqrt(max(variance, 0.0))
