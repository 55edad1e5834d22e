"""Peak memory of each task of a cluster, since parameter servers and workers differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import pandas as pd

from reports.core.grouping import backends, grouped, whole
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure
from reports.rundir.frame import RunFrames

METRIC = "task_peak_memory_mib"
KEYS = ("trainer", "keras", "backend", "collective", "workers", "scope", "job")
COLUMNS = (
    Column("model"),
    Column("backend"),
    Column("workers", right=True),
    Column("n", right=True),
    Column("job"),
    Column("MiB per task"),
)
NOTE = (
    "Peak resident set of each task of a job, in the order of the task indices: median over n "
    "fresh clusters. Pages that tasks share, such as those of the zygote, count for each task."
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"] == METRIC]


def summarize(measurements: pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each job of each case: KEYS, n, and mib (one number per task, in order)."""
    own = rows(measurements)
    # The variant ends with the task: "mlp, batch 32, worker/0".
    parts = own["variant"].str.extract(r"^(?:(?P<scope>.*), )?(?P<job>\w+)/(?P<number>\d+)$")
    parts["number"] = parts["number"].astype(int)
    for key, job in grouped(own.join(parts.fillna({"scope": ""})), KEYS):
        by_task = [list(own["value"]) for _, own in job.groupby("number")]
        yield {**key, "n": max(map(len, by_task)), "mib": list(map(median, by_task))}


def table(run: RunFrames) -> Table:
    """Return one line for each job; no rows if memory was not measured."""
    lines = []
    for row in summarize(run.measurements):
        cells = (
            row["scope"],
            backends(row["backend"], row["collective"]) or MISSING,
            whole(row["workers"]),
            str(row["n"]),
            row["job"],
            ", ".join(map(figure, row["mib"])),
        )
        lines.append(Row(approach(row["trainer"], row["keras"]), cells))
    note = NOTE if lines else "Not measured in this run."
    return Table("Memory per task", COLUMNS, tuple(lines), note).without_empty_columns()
