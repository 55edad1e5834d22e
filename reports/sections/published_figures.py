"""The documents' printed figures beside ours: one draw of this run, and the range of many seeds.

A figure is a draw as well: no more can be asked than that it could be one of ours, from both sides.
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
    Column("our seeds, 99 % of them", right=True),
    Column("in range"),
)
NOTE = (
    "The range is the two-sided prediction interval of one more run like those of our seeds: of "
    "100 figures one falls outside by chance."
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """The measurements that this report shows."""
    return measurements.loc[measurements["metric"].isin(METRICS)]


def table(run: RunFrames) -> Table:
    """One row for each quantity of each figure, in the order in which they were recorded."""
    lines = []
    shown = grouped(rows(run.measurements), KEYS)
    for key, figures in sorted(shown, key=lambda pair: pair[1].index[0]):
        values = dict(zip(figures["metric"], figures["value"], strict=True))
        document, ours, low, high = (values.get(metric, math.nan) for metric in METRICS)
        told = [value for value in (document, ours) if not math.isnan(value)]
        name, quantity = key["variant"].split(": ", 1)
        cells = (
            quantity,
            _decimals(document),
            _decimals(ours),
            f"{_decimals(low)} to {_decimals(high)}",
            "yes" if all(low <= value <= high for value in told) else "NO",
        )
        lines.append(Row(f"{name}, {approach(key['trainer'], key['keras'])}", cells))
    note = NOTE if lines else "No published figure was reproduced in this run."
    return Table("Published figures", COLUMNS, tuple(lines), note).without_empty_columns()


def _decimals(value: float) -> str:
    """As the documents print them, which no number of significant digits is."""
    return MISSING if math.isnan(value) else f"{value:.4f}"
