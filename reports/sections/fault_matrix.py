"""The fault matrix: verdict and recovery metrics of each injected fault, by approach."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from reports.core.labels import SEPARATOR, approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.core.verdicts import VERDICTS, is_red
from reports.rundir import frame, renamed
from reports.rundir.frame import BadInput, RunFrames


def _count(value: float) -> str:
    return f"{value:.0f}"


# metric -> its column and the formatter of its values
METRICS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "fault_noticed_s": ("noticed, s", figure),
    "fault_recovered_s": ("well again, s", figure),
    "fault_steps_lost": ("steps lost", _count),
    "fault_save_s": ("save, s", figure),
    "fault_restore_s": ("restore, s", figure),
}
COLUMNS = (
    Column("fault"),
    Column("victim, moment"),
    Column("verdict"),
    *(Column(name, right=True) for name, _ in METRICS.values()),
)
SPREAD_METRICS = ("fault_noticed_s", "fault_recovered_s", "fault_steps_lost")
SPREAD_COLUMNS = (
    Column("fault"),
    Column("victim, moment"),
    Column("runs", right=True),
    Column("verdicts"),
    *(Column(METRICS[metric][0]) for metric in SPREAD_METRICS),
)
TERMS = (
    "noticed: from the fault until the last of the others had failed; well again: from the fault "
    "to the first step of the task that was hurt, or of those who need it, once it is back, the "
    "harness's waiting and its restart included; steps lost: told before the restart and made again"
)
NOTE = f"{TERMS}; save: the median of those told; restore: the longest after the fault."
SPREAD_NOTE = f"Of each number the median over the runs that gave it (least to most). {TERMS}."
WORDS = {row.name: row.words for row in VERDICTS}


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin(tuple(METRICS))]


def fault_rows(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts on rows of the fault matrix."""
    return verdicts.loc[verdicts["fault"].fillna("").ne("")]


def table(run: RunFrames) -> Table:
    """Return one line per row of the fault matrix and approach, in the order of the tests."""
    values = _values(run.measurements)
    lines = []
    for row in fault_rows(run.verdicts).to_dict("records"):
        cells = (row["fault"], row["variant"], WORDS[row["verdict"]])
        told = (_spread(metric, _of([row], metric, values)) for metric in METRICS)
        lines.append(Row(approach(row["trainer"], row["keras"]), (*cells, *told)))
    lines.sort(key=lambda line: line.group)  # stable
    return Table("Faults", COLUMNS, tuple(lines), NOTE if lines else "No task was hurt by rows.")


def spread(runs: Iterable[RunFrames]) -> Table:
    """Return the fault matrix over several runs: counts of verdicts, median and range of numbers.

    Raise BadInput if the runs have no verdict on a fault or one run occurs twice.
    """
    numbers, verdicts = frame.tidy(runs)
    rows = fault_rows(verdicts).to_dict("records")
    if not rows:
        raise BadInput("no task was hurt by rows of the fault table in these runs")
    # Only columns whose values differ between rows distinguish approaches.
    differing = [
        (name, words)
        for name, words in (("tensorflow", "TensorFlow "), ("backend", "backend "))
        if len({row[name] for row in rows} - {"none"}) > 1
    ]
    values = _values(numbers)
    lines: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        parts = [approach(row["trainer"], row["keras"])]
        parts += [words + str(row[name]) for name, words in differing if row[name] != "none"]
        lines.setdefault((SEPARATOR.join(parts), row["fault"], row["variant"]), []).append(row)
    told = []
    for (group, *what), alike in sorted(lines.items(), key=lambda line: line[0][0]):
        judged = _judged(Counter(row["verdict"] for row in alike))
        cells = (_spread(metric, _of(alike, metric, values)) for metric in SPREAD_METRICS)
        told.append(Row(group, (*what, str(len(alike)), judged, *cells)))
    return Table("Faults", SPREAD_COLUMNS, tuple(told), SPREAD_NOTE)


def tally(runs: Sequence[RunFrames]) -> tuple[str, bool]:
    """Return all fault runs in one sentence, and True if there is no red verdict and no leak.

    A verdict that was given without injecting a fault, because the approach does not work at all,
    is not counted as a fault run.
    """
    rows = [row for run in runs for row in _played(run)]
    counts = Counter(row["verdict"] for row in rows)
    left = sum(len(run.info["leaks"]) for run in runs)
    minutes = sum(frame.duration_s(run.info) for run in runs) / 60
    told = f"{plural(len(rows), 'fault run')} in {minutes:.0f} min: {_judged(counts) or 'none'}; "
    told += f"{plural(left, 'leak') if left else 'no leak'}"
    return told, not (left or is_red(counts))


def _judged(counts: Mapping[str, int]) -> str:
    return ", ".join(v.counted(counts[v.name]) for v in VERDICTS if v.name in counts)


def _played(run: RunFrames) -> Iterator[dict[str, Any]]:
    """Yield verdicts of tests with a cluster named after their row: "077-sigkill-chief-saving"."""
    clusters = run.histories()
    for row in fault_rows(run.verdicts).to_dict("records"):
        names = (re.sub(r"^.*?\d{3,}-", "", name) for name in clusters.get(row["test"], ()))
        if any(renamed.scenario(name) in row["test"] for name in names):
            yield row


Values = dict[tuple[str, str, str], list[float]]  # by run, test and metric


def _values(measurements: pd.DataFrame) -> Values:
    found: Values = {}
    columns = (measurements[name] for name in ("run_id", "test", "metric", "value"))
    for *key, value in zip(*columns, strict=True):
        found.setdefault(tuple(key), []).append(value)
    return found


def _of(rows: Iterable[Mapping[str, Any]], metric: str, values: Values) -> list[float]:
    """Return the values of the metric in the runs and tests of these verdicts."""
    return [x for row in rows for x in values.get((row["run_id"], row["test"], metric), ())]


def _spread(metric: str, values: Sequence[float]) -> str:
    """Format one value as `4.5` and several as `4.5 (3.9 to 8.1)`."""
    if not values:
        return MISSING
    told = METRICS[metric][1]
    middle = told(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({told(min(values))} to {told(max(values))})"
