"""Every number that has no report of its own: median, interval and count by metric and case.

Nothing that a test recorded may be missing from the report; what throughput and start-up do not
show ends up here.
"""

from __future__ import annotations

import pandas as pd

from reports import collectives, faults, published, startup, throughput
from reports.conformance import approach
from reports.frame import RunFrames
from reports.groups import backends, circumstances, grouped, whole
from reports.statistics import middle
from reports.table import Column, Row, Table
from reports.text import figure

COLUMNS = (
    Column("approach"),
    Column("backend"),
    Column("variant"),
    Column("workers", right=True),
    Column("n", right=True),
    Column("median", right=True),
    Column("95 % interval", right=True),
)
KEYS = (
    "metric",
    "unit",
    "trainer",
    "keras",
    "backend",
    "collective",
    "variant",
    "fault",
    "workers",
)


def others(measurements: pd.DataFrame) -> pd.DataFrame:
    """The rows that no other report shows."""
    shown = startup.rows(measurements)["metric"].unique()
    known = (*throughput.METRICS, *faults.METRICS, *published.METRICS, *shown)
    others = measurements.loc[~measurements["metric"].isin(known)]
    return others.loc[~others["metric"].str.startswith(collectives.PREFIXES)]


def table(run: RunFrames) -> Table:
    """Median, interval and count of every other metric; no rows when there is none."""
    lines = []
    for key, rows in grouped(others(run.measurements), KEYS):
        estimate = middle(rows["value"])
        cells = (
            approach(key["trainer"], key["keras"]) if key["trainer"] else "",
            backends(key["backend"], key["collective"]),
            circumstances(key),
            whole(key["workers"]),
            str(estimate.count),
            figure(estimate.centre),
            estimate.interval(),
        )
        unit = f" ({key['unit']})" if key["unit"] not in ("", "1") else ""
        lines.append(Row(key["metric"] + unit, cells))
    note = "n: values. The interval of a median needs six of them."
    if not lines:
        note = "No other measurement was recorded."
    return Table("Other measurements", COLUMNS, tuple(lines), note).without_empty_columns()
