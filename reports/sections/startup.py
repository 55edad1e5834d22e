"""Time to form a cluster, to save and to restore, and memory per worker.

The ways to start tasks (forked from a zygote, plain processes, TensorFlow's own runner) are
compared in one table. The import of the zygote is a separate row, since it is paid once and not per
cluster.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from reports.core.grouping import circumstances, grouped, whole
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure
from reports.rundir.frame import RunFrames
from reports.stats.intervals import Estimate, middle

PREFIXES = ("cluster_", "zygote_", "worker_memory_", "saving_")
BASE = "fork"  # the variant that the others are compared with
KEYS = ("metric", "unit", "workers", "trainer", "variant", "fault")
COLUMNS = (
    Column("variant"),
    Column("workers", right=True),
    Column("n", right=True),
    Column("median", right=True),
    Column("95 % interval", right=True),
    Column(f"ratio to {BASE}", right=True),
)
NOTE = (
    "n: fresh clusters or processes. The confidence interval of a median needs at least six "
    f"values; that of a ratio covers the clusters of both variants. ratio to {BASE}: of "
    "medians."
)
ENDS = ("_low", "_high")  # suffixes of the metrics that hold the ends of an interval


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].str.startswith(PREFIXES)]


def summarize(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row per sample, the shortest first: KEYS, estimate, times_base (NaN: no base)."""
    samples = []
    for key, values in grouped(rows(measurements), KEYS):
        estimate = middle(values["value"])
        samples.append({**key, "estimate": estimate, "times_base": math.nan})
    samples = _with_ends(samples)
    samples.sort(key=lambda row: (row["metric"], row["estimate"].center))
    summary = pd.DataFrame(samples, columns=[*KEYS, "estimate", "times_base"])
    for _, same in summary.groupby(["metric", "workers", "trainer"], dropna=False):
        base = [estimate.center for estimate in same.loc[same["variant"] == BASE, "estimate"]]
        if len(base) == 1 and base[0] and len(same) > 1:
            times = [estimate.center / base[0] for estimate in same["estimate"]]
            summary.loc[same.index, "times_base"] = times
    return summary


def _with_ends(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the samples, with those that are interval ends moved into their sample's estimate."""
    by_key = {(row["metric"], *(str(row[key]) for key in KEYS[1:])): row for row in samples}
    ends = set()
    for key, row in by_key.items():
        own = [(key[0] + end, *key[1:]) for end in ENDS]
        if all(end in by_key for end in own):
            low, high = (by_key[end]["estimate"].center for end in own)
            row["estimate"] = replace(row["estimate"], low=low, high=high)
            ends.update(own)
    return [row for key, row in by_key.items() if key not in ends]


def table(run: RunFrames) -> Table:
    """Return the table of startup and memory; the note says if nothing was measured."""
    lines = []
    for row in summarize(run.measurements).to_dict("records"):
        estimate: Estimate = row["estimate"]
        times = row["times_base"]
        cells = (
            circumstances(row) or row["trainer"] or MISSING,
            whole(row["workers"]),
            str(estimate.count),
            figure(estimate.center),
            estimate.interval(),
            figure(times) if math.isfinite(times) else "",
        )
        unit = "" if row["unit"] == "1" else f" ({row['unit']})"
        lines.append(Row(row["metric"] + unit, cells))
    note = NOTE if lines else "No startup time or memory was measured in this run."
    return Table(
        "Startup, checkpoints and memory", COLUMNS, tuple(lines), note
    ).without_empty_columns()
