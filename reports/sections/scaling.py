"""Strong and weak scaling: rate, speed-up and efficiency by workers and size of the model."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pandas as pd

from reports.core.grouping import backends, grouped, whole
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure
from reports.rundir.frame import RunFrames
from reports.stats.intervals import mean

PREFIX, RATE = "scaling_", "examples_per_s"
KEYS = ("trainer", "keras", "backend", "workers", "variant")
ALONE, TOGETHER = "alone", "together"  # values of `way`: a single process, a cluster
PHASES_AND_USE = ("formation_s", "first_step_s", "tracing_s", "cpu_s", "peak_memory_mib")
COLUMNS = (
    Column("model"),
    Column("scaling"),
    Column("batch", right=True),
    Column("workers", right=True),
    Column("n", right=True),
    Column("step ms", right=True),
    Column("p99 ms", right=True),
    Column("examples/s", right=True),
    Column("speedup", right=True),
    Column("efficiency", right=True),
    Column("communication %", right=True),
    Column("formation s", right=True),
    Column("first step s", right=True),
    Column("tracing s", right=True),
    Column("CPU s", right=True),
    Column("peak MiB", right=True),
)
NOTE = (
    "batch: batch size per worker. n: passes, minutes apart. ±: 95 % confidence interval of the "
    "mean over passes (Student's t, which is wide for two passes). p99: with fewer than 100 steps "
    "about the slowest step. speedup: examples/s relative to one process without a strategy in the "
    "same pass. efficiency: speedup divided by the number of workers, which all share this "
    "machine. communication: additional step time compared with as many processes that train at "
    "the same time without communication. formation: from the start of the last task until all "
    "tasks have joined. first step: from then until all tasks have made a step. tracing: time of "
    "the first step minus that of a warm step. CPU: CPU time of all tasks since their start. peak: "
    "largest resident set of a task."
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].str.startswith(PREFIX)]


def summarize(measurements: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row per cluster case: KEYS, parts of the variant, values by metric, speed-up.

    values: metric, without PREFIX, -> pass -> value. speed_up: an Estimate over the passes, each
    relative to the single process with that model in the same pass; None if there is no such pass.
    """
    cases = []
    for key, case in grouped(rows(measurements), KEYS):
        model, scaling, batch, way = key["variant"].split(", ")
        values = {
            str(metric)[len(PREFIX) :]: dict(zip(own["repeat"], own["value"], strict=True))
            for metric, own in case.groupby("metric")
        }
        parts = {"model": model, "scaling": scaling, "batch": int(batch.split()[1]), "way": way}
        collective = case["collective"].iloc[0]
        cases.append({**key, **parts, "collective": collective, "values": values})
    alone = {
        (*_approach(row), row["model"]): row["values"][RATE] for row in cases if row["way"] == ALONE
    }
    clusters = [row for row in cases if row["way"] == TOGETHER]
    # A cluster of one worker has no peers to reduce with; list it with others of its approach.
    several = {_approach(row): row["collective"] for row in clusters if row["workers"] > 1}
    for row in clusters:
        row["collective"] = several.get(_approach(row), row["collective"])
        base = alone.get((*_approach(row), row["model"]), {})
        rates = row["values"][RATE]
        ratios = [rates[repeat] / base[repeat] for repeat in rates if repeat in base]
        row["speed_up"] = mean(ratios) if ratios else None
    return sorted(clusters, key=_place)


def _approach(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["trainer"], row["keras"], row["backend"]


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*_approach(row), row["model"], row["scaling"] != "weak", row["workers"])


def table(run: RunFrames) -> Table:
    """Return one line for each case; no rows if scaling was not measured."""
    lines = []
    for row in summarize(run.measurements):
        values = {metric: list(of.values()) for metric, of in row["values"].items()}
        rate, speed_up = mean(values[RATE]), row["speed_up"]
        share = [100 * value for value in values.get("communication_share", ())]
        cells = (
            row["model"],
            row["scaling"],
            str(row["batch"]),
            whole(row["workers"]),
            str(rate.count),
            *(figure(1000 * fmean(values[name])) for name in ("step_s", "step_p99_s")),
            rate.plus_minus(),
            speed_up.plus_minus() if speed_up else MISSING,
            f"{100 * speed_up.center / row['workers']:.0f} %" if speed_up else MISSING,
            mean(share).plus_minus() if share else MISSING,
            *(figure(fmean(values[name])) for name in PHASES_AND_USE),
        )
        heading = approach(row["trainer"], row["keras"])
        lines.append(Row(f"{heading}, {backends(row['backend'], row['collective'])}", cells))
    return Table("Scaling", COLUMNS, tuple(lines), NOTE if lines else "Not measured in this run.")
