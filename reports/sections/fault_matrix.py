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
    "fault_detection_s": ("time to detect, s", figure),
    "fault_recovered_s": ("time to recover, s", figure),
    "fault_steps_lost": ("steps lost", _count),
    "fault_save_s": ("save, s", figure),
    "fault_restore_s": ("restore, s", figure),
}
COLUMNS = (
    Column("fault"),
    Column("target, injection point"),
    Column("verdict"),
    *(Column(name, right=True) for name, _ in METRICS.values()),
)
SPREAD_METRICS = ("fault_detection_s", "fault_recovered_s", "fault_steps_lost")
SPREAD_COLUMNS = (
    Column("fault"),
    Column("target, injection point"),
    Column("runs", right=True),
    Column("verdicts"),
    *(Column(METRICS[metric][0]) for metric in SPREAD_METRICS),
)
TERMS = (
    "time to detect: from the fault until the last of the peers fails. time to recover: from the "
    "fault until the first step after the restart, of the target or of the tasks that need it; it "
    "includes the restart delay of the harness. steps lost: steps that were completed before the "
    "restart and had to be repeated."
)
NOTE = f"{TERMS} save: median over the saves. restore: longest restore after the fault."
SPREAD_NOTE = f"Numbers are medians over the runs that recorded them (minimum to maximum). {TERMS}"
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
        numbers = (_spread(metric, _of([row], metric, values)) for metric in METRICS)
        lines.append(Row(approach(row["trainer"], row["keras"]), (*cells, *numbers)))
    lines.sort(key=lambda line: line.group)  # stable
    return Table(
        "Faults",
        COLUMNS,
        tuple(lines),
        NOTE if lines else "No fault of the matrix was injected in this run.",
    )


def spread(runs: Iterable[RunFrames]) -> Table:
    """Return the fault matrix over several runs: counts of verdicts, median and range of numbers.

    Raise BadInput if the runs have no verdict on a fault or one run occurs twice.
    """
    numbers, verdicts = frame.tidy(runs)
    rows = fault_rows(verdicts).to_dict("records")
    if not rows:
        raise BadInput("no fault of the matrix was injected in these runs")
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
    lines_of_table = []
    for (group, *case), same in sorted(lines.items(), key=lambda line: line[0][0]):
        counts = _verdict_counts(Counter(row["verdict"] for row in same))
        cells = (_spread(metric, _of(same, metric, values)) for metric in SPREAD_METRICS)
        lines_of_table.append(Row(group, (*case, str(len(same)), counts, *cells)))
    return Table("Faults", SPREAD_COLUMNS, tuple(lines_of_table), SPREAD_NOTE)


def tally(runs: Sequence[RunFrames]) -> tuple[str, bool]:
    """Return all fault runs in one sentence, and True if there is no red verdict and no leak.

    A verdict that was given without injecting a fault, because the approach does not work at all,
    is not counted as a fault run.
    """
    rows = [row for run in runs for row in _fault_runs(run)]
    counts = Counter(row["verdict"] for row in rows)
    leaks = sum(len(run.info["leaks"]) for run in runs)
    minutes = sum(frame.duration_s(run.info) for run in runs) / 60
    text = f"{plural(len(rows), 'fault run')} in {minutes:.0f} min: "
    text += f"{_verdict_counts(counts) or 'none'}; "
    text += f"{plural(leaks, 'leak') if leaks else 'no leak'}"
    return text, not (leaks or is_red(counts))


def _verdict_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(v.counted(counts[v.name]) for v in VERDICTS if v.name in counts)


def _fault_runs(run: RunFrames) -> Iterator[dict[str, Any]]:
    """Yield verdicts of tests with a cluster named after their row: "077-sigkill-chief-saving"."""
    clusters = run.histories()
    for row in fault_rows(run.verdicts).to_dict("records"):
        names = (re.sub(r"^.*?\d{3,}-", "", name) for name in clusters.get(row["test"], ()))
        if any(renamed.scenario(name) in row["test"] for name in names):
            yield row


Values = dict[tuple[str, str, str], list[float]]  # by run, test and metric


def _values(measurements: pd.DataFrame) -> Values:
    values: Values = {}
    columns = (measurements[name] for name in ("run_id", "test", "metric", "value"))
    for *key, value in zip(*columns, strict=True):
        values.setdefault(tuple(key), []).append(value)
    return values


def _of(rows: Iterable[Mapping[str, Any]], metric: str, values: Values) -> list[float]:
    """Return the values of the metric in the runs and tests of these verdicts."""
    return [x for row in rows for x in values.get((row["run_id"], row["test"], metric), ())]


def _spread(metric: str, values: Sequence[float]) -> str:
    """Format one value as `4.5` and several as `4.5 (3.9 to 8.1)`."""
    if not values:
        return MISSING
    formatted = METRICS[metric][1]
    middle = formatted(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({formatted(min(values))} to {formatted(max(values))})"
