"""Interleaved measurement of two sides: ratio of their step times, and the answer.

Rows of `paired_step_time_s` come from `pytest suite/benchmarks/test_paired.py --base WHAT`: the
k-th turn of the base in a pair of processes is next to the k-th turn of the new side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from reports.core.grouping import backends, grouped, whole
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.rundir.frame import BadInput, RunFrames
from reports.stats import ratio_tests
from reports.stats.ratio_tests import Answer, Effect

TIME = "paired_step_time_s"
START_UP = "paired_start_up_s"
TIMED = "paired_timed_s"
NOISE = {"paired_steal_share": 0.02, "paired_foreign_share": 0.05}  # metric -> limit of a pair
METRICS = (TIME, START_UP, TIMED, *NOISE)
SIDES = ("base", "new")
PASSED = "passed"
COLUMNS = (
    Column("pairs", right=True),
    Column("timed s", right=True),
    Column("ended"),
    Column("step ms"),
    Column("new / base (95 %)"),
    Column("answer"),
    Column("start-up", right=True),
    Column("noisy", right=True),
)
NOTE = (
    "timed: of each side, in all pairs. ended: when pairs agreed (enough), or when the budget was "
    "spent. step: base → new, medians over turns. new / base: of step times, so above 1 is slower; "
    f"hierarchical bootstrap over pairs of processes and turns, 95 %. A change counts from "
    f"{100 * ratio_tests.FLOOR:.0f} % on, where the interval excludes none and chance would give "
    "it less than once in 20 such comparisons together, and nothing is told from fewer than "
    f"{ratio_tests.LEAST_PAIRS} pairs. start-up: seconds from the start until warm, base and new "
    "at once. noisy: pairs in which the hypervisor took more than 2 % of the processors' time, "
    "or other processes used more than 5 %."
)


@dataclass(frozen=True)
class Series:
    """One comparison; `labels` of both sides name their differences; times are in seconds."""

    test: str
    name: str  # approach and backend of the new side
    labels: Mapping[str, str]
    workers: str
    log_ratios: Sequence[np.ndarray]  # of each pair of processes
    step_s: Mapping[str, float]
    timed_s: float  # of each side, in all pairs
    start_up_s: float
    noisy: int

    @property
    def ended(self) -> str:
        """Return "enough" if the pairs agreed, or "budget" if the time budget was spent."""
        return "enough" if ratio_tests.enough(self.log_ratios) else "budget"

    @cached_property
    def effect(self) -> Effect:
        return ratio_tests.paired(self.log_ratios)


def ended_well(measurements: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements of tests that passed; pairs of a broken comparison are discarded."""
    lost = verdicts.loc[verdicts["verdict"] != PASSED]
    names = set(zip(lost["run_id"], lost["test"], strict=True))
    tests = zip(measurements["run_id"], measurements["test"], strict=True)
    return measurements.loc[[test not in names for test in tests]]


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin(METRICS)]


def series(measurements: pd.DataFrame) -> list[Series]:
    """Return every comparison in the order of the tests; raise BadInput for turns without pairs."""
    return [_series(str(key["test"]), found) for key, found in grouped(rows(measurements), KEYS)]


KEYS = ("run_id", "test")


def _series(test: str, found: pd.DataFrame) -> Series:
    timed = found.loc[found["metric"] == TIME]
    sides = {side: timed.loc[timed["variant"] == side] for side in SIDES}
    pairs = log_ratios(test, timed)
    noisy = set()
    for metric, most in NOISE.items():
        shares = found.loc[(found["metric"] == metric) & (found["value"] > most)]
        noisy |= set(shares["repeat"])
    return Series(
        test=test,
        name=_name(sides["new"].iloc[0]),
        labels=_labels(sides),
        workers=whole(sides["new"]["workers"].iloc[0]),
        log_ratios=pairs,
        step_s={side: float(side_rows["value"].median()) for side, side_rows in sides.items()},
        timed_s=float(found.loc[found["metric"] == TIMED, "value"].sum()),
        start_up_s=_median(found.loc[found["metric"] == START_UP, "value"]),
        noisy=len(noisy),
    )


def log_ratios(name: str, timed: pd.DataFrame) -> list[np.ndarray]:
    """Return the log ratios (new to base) of the turns of each pair of processes, in order.

    `timed`: rows of TIME of one comparison; `name`: its name in errors. Raise BadInput if a turn
    has an unknown side, takes no time, or the turns are not in pairs.
    """
    wrong = timed.loc[~timed["variant"].isin(SIDES) | ~(timed["value"] > 0)]
    for _, row in wrong.iterrows():
        told = f"variant {row['variant']!r} and value {row['value']:g}"
        raise BadInput(f"{name}: a turn has {told}, not base or new and more than 0 s")
    logs = {side: dict(_turns(timed.loc[timed["variant"] == side])) for side in SIDES}
    lengths = [{pair: len(turns) for pair, turns in by_pair.items()} for by_pair in logs.values()]
    if not lengths[0] or lengths[0] != lengths[1]:
        raise BadInput(f"{name}: the turns of base and new are not in pairs")
    return [logs["new"][pair] - base for pair, base in sorted(logs["base"].items())]


def _median(values: Sequence[float]) -> float:
    return median(values) if len(values) else float("nan")


def _turns(side: pd.DataFrame) -> Iterator[tuple[int, np.ndarray]]:
    for repeat, turns in side.groupby("repeat", sort=True):
        yield int(repeat), np.log(turns["value"].to_numpy(float))  # type: ignore[call-overload]


def _labels(sides: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Label each side by its differences from the other; "the same" if there are none."""
    first = {side: found.iloc[0] for side, found in sides.items()}
    named: Mapping[str, Any] = {
        "trainer": lambda row: str(row["trainer"]),
        "workers": lambda row: plural(int(row["workers"]), "worker"),
        "backend": lambda row: backends(row["backend"], row["collective"]) or "none",
        "keras": lambda row: str(row["keras"]),
        "tensorflow": lambda row: f"TensorFlow {row['tensorflow']}",
        "python": lambda row: f"Python {row['python']}",
        "planted": lambda row: str(row["fault"]) or "as it is",
    }
    parts: dict[str, list[str]] = {side: [] for side in SIDES}
    for told in named.values():
        texts = {side: told(row) for side, row in first.items()}
        if len(set(texts.values())) > 1:
            for side, text in texts.items():
                parts[side].append(text)
    return {side: ", ".join(found) or "the same" for side, found in parts.items()}


def judged(found: Sequence[Series]) -> list[Answer]:
    """Return the answer of each comparison, corrected for the number of comparisons."""
    return [
        ratio_tests.judge(one.effect, "lower", len(found), least=ratio_tests.LEAST_PAIRS)
        for one in found
    ]


def ratio(effect: Effect) -> str:
    """Return `1.052 (1.049 to 1.056)`."""
    if not effect.known:
        return f"{effect.ratio:.3f} ({MISSING})"
    return f"{effect.ratio:.3f} ({effect.low:.3f} to {effect.high:.3f})"


def heading(one: Series) -> str:
    """Return `keras_mirrored · tf_keras 2.21.0, 1 worker: Python 3.11.7 → Python 3.12.1`."""
    sides = [one.labels[side] for side in SIDES]
    told = "the same by name" if sides[0] == sides[1] else " → ".join(sides)
    return f"{one.name}, {plural(int(one.workers), 'worker')}: {told}"


def table(found: Sequence[Series], answers: Sequence[Answer]) -> Table:
    """Return a line for each comparison; no rows if nothing was compared."""
    lines = []
    for one, answer in zip(found, answers, strict=True):
        cells = (
            str(len(one.log_ratios)),
            figure(one.timed_s) if one.timed_s else MISSING,
            one.ended,
            " → ".join(figure(1000 * one.step_s[side]) for side in SIDES),
            ratio(one.effect),
            answer.value,
            figure(one.start_up_s),
            str(one.noisy),
        )
        lines.append(Row(heading(one), cells))
    return Table("In turns", COLUMNS, tuple(lines), NOTE if lines else "Nothing was compared.")


def of_run(run: RunFrames) -> Table:
    """Return the comparisons of one run, judged without those of other runs."""
    found = series(ended_well(run.measurements, run.verdicts))
    return table(found, judged(found))


def _name(row: Any) -> str:
    shown = approach(row["trainer"], row["keras"])
    backend = backends(row["backend"], row["collective"])
    return f"{shown}, {backend}" if backend else shown
