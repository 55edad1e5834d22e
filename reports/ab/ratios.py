"""Ratios to a frozen side, which can be followed from run to run.

A paired comparison gives the ratio of the step times of both sides in the same minutes. A pinned
TensorFlow and trainer as its base makes runs of different days comparable: what slows the machine
slows both sides. A control, the base against itself in the same run, shows how far such a ratio is
from 1 without any cause on that day.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from reports.ab import pairs
from reports.core.grouping import grouped
from reports.stats import ratio_tests

RATIO = "paired_ratio"  # of one pair of processes: step time of the new side by that of the base
UNIT = "ratio"
# Standard deviation, as a logarithm, of a ratio from one run to another, in addition to that of its
# pairs. The runs of docs/evidence/gate.parquet, some hours apart, differ by less.
DRIFT = math.log1p(0.005)
STRICTNESS = 5  # so often fewer false alarms than of other series: 1 % in all ratios together
# Differences between the sides that the name of a series has; versions are always in it.
NAMED = ("trainer", "workers", "backend", "injected")


def with_ratios(measurements: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements with a row of RATIO for each pair of processes.

    Comparisons whose test did not pass have none. Raise BadInput if the turns of a comparison are
    not in pairs.
    """
    timed = measurements.loc[measurements["metric"] == pairs.TIME]
    rows = list(_rows(pairs.ended_well(timed, verdicts)))
    if not rows:
        return measurements
    added = pd.DataFrame(rows, columns=measurements.columns).astype(measurements.dtypes.to_dict())
    return pd.concat([measurements, added], ignore_index=True)


def _rows(timed: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for key, turns in grouped(timed, pairs.KEYS):
        sides = {side: turns.loc[turns["variant"] == side] for side in pairs.SIDES}
        logs = pairs.log_ratios(str(key["test"]), turns)
        first = {str(name): value for name, value in sides["new"].iloc[0].items()}
        first |= {"metric": RATIO, "unit": UNIT, "better": "lower", "variant": f"to {_base(sides)}"}
        numbers = sorted(sides["base"]["repeat"].unique())
        for repeat, turns_of_pair in zip(numbers, logs, strict=True):
            yield {**first, "repeat": repeat, "value": center(turns_of_pair)}


def center(log_ratios: np.ndarray) -> float:
    """Return the ratio of one pair of processes from those of its turns."""
    return math.exp(ratio_tests.location(log_ratios))


def _base(sides: dict[str, pd.DataFrame]) -> str:
    """Return `TensorFlow 2.20.0, tf_keras 2.20.0, Python 3.11.7`, and what else differs."""
    base = sides["base"].iloc[0]
    parts = [pairs.DESCRIPTIONS[name](base) for name in ("tensorflow", "keras", "python")]
    differing = pairs.descriptions(sides)
    parts += [differing[name]["base"] for name in NAMED if name in differing]
    return ", ".join(part for part in parts if part)


def drift(controls: pd.DataFrame) -> float:
    """Return the drift of a ratio between two runs, as a logarithm, from the controls of both.

    `controls`: rows of pairs.CONTROL. On a bad day the base differs from itself by more than its
    pairs explain, which adds to DRIFT. Without controls it is DRIFT.
    """
    excess = []
    for _, rows in controls.groupby(["run_id", "test"]):
        logs = np.log(rows["value"].to_numpy(float))
        noise = logs.var(ddof=1) / len(logs) if len(logs) > 1 else 0.0
        excess.append(max(0.0, float(logs.mean()) ** 2 - noise))
    return math.sqrt(DRIFT**2 + (float(np.mean(excess)) if excess else 0.0))
