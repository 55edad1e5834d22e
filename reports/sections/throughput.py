"""Training speed of each approach, by the requested backend and the backend actually used.

One value is the result of one process. The interval therefore covers variance between processes,
which repeats inside one process would hide. The column `collective` has the backend that was
actually used; a requested backend alone proves nothing.
"""

from __future__ import annotations

from statistics import median

import pandas as pd

from reports.core.grouping import circumstances, grouped, whole
from reports.core.labels import SEPARATOR, approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure
from reports.rundir.frame import RunFrames
from reports.stats.intervals import mean

RATES = {"throughput_steps_per_s": "steps_per_s", "throughput_examples_per_s": "examples_per_s"}
TIMES = {"step_time_p50_s": "p50_s", "step_time_p90_s": "p90_s", "step_time_p99_s": "p99_s"}
USED = {"training_cpu_s": "cpu_s", "training_peak_memory_mib": "peak_memory_mib"}
MEDIANS = TIMES | USED
METRICS = (*RATES, *MEDIANS)
KEYS = ("trainer", "keras", "variant", "fault", "workers", "backend", "collective")
COLUMNS = (
    Column("requested"),
    Column("actual"),
    Column("workers", right=True),
    Column("n", right=True),
    Column("steps/s", right=True),
    Column("examples/s", right=True),
    Column("p50 ms", right=True),
    Column("p90 ms", right=True),
    Column("p99 ms", right=True),
    Column("CPU s", right=True),
    Column("peak MiB", right=True),
)
NOTE = (
    "requested, actual: backend. n: separate processes. Rates: mean over processes ± 95 % "
    "confidence interval (Student's t). p50, p90, p99: quantiles of the step time within a "
    "process; with fewer than 100 steps p99 is about the slowest step. CPU: CPU time of all tasks "
    "since their start, including tracing. peak: resident set of the largest task. All values "
    "except the rates are medians over processes. If steps run asynchronously (DTensor; custom "
    "loops on GPUs), the step time is only the time of the dispatch."
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin(METRICS)]


def summarize(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row per case (the columns KEYS).

    processes: their number. steps_per_s, examples_per_s: an Estimate over them, or None. p50_s,
    p90_s, p99_s, cpu_s: seconds, or None; peak_memory_mib: or None. values_per_s: short name of the
    rate -> values of the processes.
    """
    cases = []
    for key, case in grouped(rows(measurements), KEYS):
        values = {name: list(part["value"]) for name, part in case.groupby("metric")}
        cases.append(
            {
                **key,
                "processes": max(len(values_of_metric) for values_of_metric in values.values()),
                "values_per_s": {short: values.get(name, []) for name, short in RATES.items()},
                **{s: mean(values[n]) if n in values else None for n, s in RATES.items()},
                **{s: median(values[n]) if n in values else None for n, s in MEDIANS.items()},
            }
        )
    columns = [*KEYS, "processes", "values_per_s", *RATES.values(), *MEDIANS.values()]
    return pd.DataFrame(cases, columns=columns, dtype=object)


def heading(case: dict) -> str:
    """Return the approach, with its variant and fault if any."""
    extra = circumstances(case)
    return approach(case["trainer"], case["keras"]) + (SEPARATOR + extra if extra else "")


def table(run: RunFrames) -> Table:
    """Return the table of rates and step times; without rows the note gives the reason."""
    lines = []
    for case in summarize(run.measurements).to_dict("records"):
        rates = (case[name] for name in RATES.values())
        times = (case[name] for name in TIMES.values())
        cells = (
            case["backend"] or MISSING,
            case["collective"] or MISSING,
            whole(case["workers"]) or MISSING,
            str(case["processes"]),
            *(rate.plus_minus() if rate else MISSING for rate in rates),
            *(figure(None if time is None else 1000 * time) for time in times),
            *("" if case[name] is None else figure(case[name]) for name in USED.values()),
        )
        lines.append(Row(heading(case), cells))
    result = Table("Throughput", COLUMNS, tuple(lines), NOTE if lines else _why_none(run))
    return result.without_empty_columns()


def _why_none(run: RunFrames) -> str:
    workers = run.info.get("xdist_workers")
    if workers:
        return f"Timings were not taken: {workers} pytest workers shared the machine (-n)."
    return "No throughput was measured in this run."
