"""Every metric without a section of its own: median, interval and count by metric and case.

This section ensures that the report shows every measurement of every test.
"""

from __future__ import annotations

from collections.abc import Collection

from reports.core.grouping import backends, circumstances, grouped, whole
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import figure
from reports.rundir.frame import RunFrames
from reports.stats.intervals import middle

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


def table(run: RunFrames, metrics_elsewhere: Collection[str]) -> Table:
    """Return median, interval and count of every metric except those in `shown`."""
    lines = []
    others = run.measurements.loc[~run.measurements["metric"].isin(metrics_elsewhere)]
    for key, rows in grouped(others, KEYS):
        estimate = middle(rows["value"])
        cells = (
            approach(key["trainer"], key["keras"]) if key["trainer"] else "",
            backends(key["backend"], key["collective"]),
            circumstances(key),
            whole(key["workers"]),
            str(estimate.count),
            figure(estimate.center),
            estimate.interval(),
        )
        unit = f" ({key['unit']})" if key["unit"] not in ("", "1") else ""
        lines.append(Row(key["metric"] + unit, cells))
    note = "n: number of values. The confidence interval of a median needs at least six values."
    if not lines:
        note = "No other measurement was recorded."
    return Table("Other measurements", COLUMNS, tuple(lines), note).without_empty_columns()
