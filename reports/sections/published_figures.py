"""Published figures next to ours: one value of this run, and the prediction interval of many seeds.

A published figure is a random draw as well. The column "in range" therefore only requires that the
figure and this run's value both lie within the interval.
"""

from __future__ import annotations

import math

import pandas as pd

from reports.core.grouping import grouped
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING
from reports.rundir.frame import RunFrames

METRICS = ("published_document", "published_ours", "published_low", "published_high")
KEYS = ("trainer", "keras", "variant")
COLUMNS = (
    Column("quantity"),
    Column("document", right=True),
    Column("this run", right=True),
    Column("99 % prediction interval", right=True),
    Column("in range"),
)
NOTE = (
    "The two-sided 99 % prediction interval is that of one more run, computed from our runs with "
    "different seeds. By chance, 1 of 100 figures falls outside."
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin(METRICS)]


def table(run: RunFrames) -> Table:
    """Return one row for each quantity of each figure, in the order of recording."""
    lines = []
    groups = grouped(rows(run.measurements), KEYS)
    for key, figures in sorted(groups, key=lambda pair: pair[1].index[0]):
        values = dict(zip(figures["metric"], figures["value"], strict=True))
        document, ours, low, high = (values.get(metric, math.nan) for metric in METRICS)
        present = [value for value in (document, ours) if not math.isnan(value)]
        name, quantity = key["variant"].split(": ", 1)
        cells = (
            quantity,
            _decimals(document),
            _decimals(ours),
            f"{_decimals(low)} to {_decimals(high)}",
            "yes" if all(low <= value <= high for value in present) else "NO",
        )
        lines.append(Row(f"{name}, {approach(key['trainer'], key['keras'])}", cells))
    note = NOTE if lines else "No published figure was reproduced in this run."
    return Table("Published figures", COLUMNS, tuple(lines), note).without_empty_columns()


def _decimals(value: float) -> str:
    """Format with four decimals, as in the documents, instead of significant digits."""
    return MISSING if math.isnan(value) else f"{value:.4f}"
