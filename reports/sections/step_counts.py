"""Numbers of a step that do not depend on time, for each approach: operations, bytes, traces."""

from __future__ import annotations

from statistics import median

import pandas as pd

from reports.core.grouping import backends, grouped, whole
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING
from reports.rundir.frame import RunFrames
from reports.stats.counts import COUNTS, PER_COLLECTIVE, amount

KEYS = ("trainer", "keras", "backend", "collective", "workers")
NUMBERS = {
    "step_operations": "operations",
    "step_collectives": "collectives",
    "step_collective_bytes": "their bytes",
    "wire_bytes_per_step": "bytes sent",
    PER_COLLECTIVE: "sent per collective",
    "retracings": "retracings",
}
COLUMNS = (
    Column("backend"),
    Column("workers", right=True),
    *(Column(name, right=True) for name in NUMBERS.values()),
)
NOTE = (
    "operations: in the graph of the function that trains and in the functions that it calls. "
    "collectives: those of them that exchange tensors between replicas; their bytes: size of these "
    "tensors. All three are of one task. The collectives of DTensor are unknown, because it adds "
    "them after the trace. bytes sent: by all tasks together for one step, with headers, "
    "acknowledgements and heartbeats. retracings: after the first step."
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin([*COUNTS, *NUMBERS])]


def table(run: RunFrames) -> Table:
    """Return a line for each approach and backend; no rows if nothing was counted."""
    lines = []
    for key, own in grouped(rows(run.measurements), KEYS):
        by_metric = {str(name): list(values) for name, values in own.groupby("metric")["value"]}
        numbers = (amount(median(by_metric[n])) if n in by_metric else "" for n in NUMBERS)
        backend = backends(key["backend"], key["collective"]) or MISSING
        cells = (backend, whole(key["workers"]), *numbers)
        lines.append(Row(approach(key["trainer"], key["keras"]), cells))
    note = NOTE if lines else "Not counted in this run."
    return Table("Numbers of a step", COLUMNS, tuple(lines), note).without_empty_columns()
