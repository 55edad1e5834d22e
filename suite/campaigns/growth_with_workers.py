"""How the cost of a cluster grows with its workers, from runs of test_many_workers.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from reports.core.table import Column, Row, Table
from reports.rundir import frame
from reports.rundir.frame import BadInput

TEST = "::test_cost_of_many_workers["
# Metric -> its heading.
METRICS = {
    "cluster_first_all_reduce_s": "first all-reduce, s",
    "cluster_trained_s": "training, s",
    "training_cpu_s": "CPU of tasks, s",
    "training_peak_memory_mib": "largest task, MiB",
    "harness_processor_s": "CPU of harness, s",
    "cluster_events_kib": "events, KiB",
}
# The first cluster of a run waits for the import of TensorFlow, so growth begins with this one.
FROM = 8
COLUMNS = (Column("workers", right=True), *(Column(text, right=True) for text in METRICS.values()))
NOTE = (
    "One cluster each. The last line is the exponent k of the growth: workers to the power of k, "
    f"by the first and last cluster of {FROM} workers or more. The harness is pytest's process, "
    "and on Ray the agents."
)


def table(runs: Sequence[frame.RunFrames]) -> Table:
    """Return the costs of each run by number of workers; BadInput if a run has none."""
    rows: list[Row] = []
    for run in runs:
        found = run.measurements
        found = found[found["test"].str.contains(TEST, regex=False)]
        if found.empty:
            raise BadInput(f"{run.run_id}: test_cost_of_many_workers did not run")
        engine, trainer = (next(iter(found[name])) for name in ("engine", "trainer"))
        columns = (found["metric"], found["workers"], found["value"])
        costs: dict[str, dict[int, float]] = {metric: {} for metric in METRICS}
        for metric, workers, value in zip(*columns, strict=True):
            costs.get(metric, {})[int(workers)] = float(value)
        heading = f"{trainer} on the engine {engine}"
        for workers in sorted(costs["cluster_trained_s"]):
            cells = (_number(own[workers]) if workers in own else "" for own in costs.values())
            rows.append(Row(heading, (f"{workers}", *cells)))
        rows.append(Row(heading, ("growth", *map(_exponent, costs.values()))))
    return Table("Cost of more workers", COLUMNS, tuple(rows), NOTE)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _exponent(costs: Mapping[int, float]) -> str:
    many = sorted(
        (workers, cost) for workers, cost in costs.items() if workers >= FROM and cost > 0
    )
    if len(many) < 2:
        return ""
    (fewest, first), (most, last) = many[0], many[-1]
    return f"{math.log(last / first) / math.log(most / fewest):.2f}"
