"""Constants of the code, and single figures of recorded runs, that a sentence of a page contains.

`{{ NAME }}` in a page is replaced by the value of VALUES with that name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import ModuleType

from reports.rundir import frame
from reports.stats import changepoints, counts, intervals, ratio_tests, run_levels
from reports.upgrade import command as upgrade
from suite.campaigns import gate_trials, parquet_file
from suite.harness.ab import interleaved
from suite.harness.cluster import diagnostics
from suite.harness.core import link_rates
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.settings import MALLOC, Settings
from suite.harness.environment import dataset
from suite.harness.metrics import published_ranges
from suite.harness.scenarios import base
from suite.harness.session import prefetch
from suite.harness.task_side import log_limits

from .paths import EVIDENCE

WAYS = ("multi_process_runner", "fork")


def benchmark(name: str) -> ModuleType:
    """Return a module of benchmarks. Only the suite's pytest knows its marks, so import it late."""
    return importlib.import_module(f"suite.benchmarks.{name}")


def percent(share: float) -> str:
    return f"{100 * share:g} %"


def seconds(value: float) -> str:
    return f"{value:g} s"


def size(count: int) -> str:
    """Return a number of bytes in the largest unit of which it is a multiple."""
    units = ("bytes", "KiB", "MiB", "GiB")
    place = max(i for i in range(len(units)) if count % 1024**i == 0)
    return f"{count // 1024**place} {units[place]}"


def listed(values: Iterable[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


def gate_requirements() -> str:
    rows = gate_trials.INJECTED.items()
    return " or ".join(f"{percent(share)} ({percent(slowdown)} slower)" for slowdown, share in rows)


def link_speeds() -> str:
    units = ((1e9, "Gbit/s"), (1e6, "Mbit/s"))
    rates = [link_rates.RATES[link].bits_per_s for link in benchmark("test_shaped_links").LINKS]
    return listed(
        next(f"{rate / unit:g} {name}" for unit, name in units if rate >= unit) for rate in rates
    )


@cache
def benchmark_run() -> frame.RunFrames:
    (run,) = parquet_file.load(EVIDENCE / "benchmarks.parquet")
    return run


def machine() -> str:
    found = benchmark_run().info["machine"]
    return f"{found['cores']} cores and {found['memory_gib']:.0f} GiB"


def with_interval(values: Mapping[str, float], metric: str) -> list[float]:
    """Return a metric's estimate and the ends of its interval, from values by metric."""
    return [values[f"{metric}{end}"] for end in ("", "_low", "_high")]


def runner_ratio() -> str:
    """Return the time of TensorFlow's runner relative to forked tasks, by the workers' clock."""
    rows = benchmark_run().measurements
    rows = rows[rows["variant"] == " / ".join(WAYS)].set_index("metric")["value"]
    found = with_interval(rows, "cluster_reduced_inside_ratio")
    return "{:.2f} times, {:.2f} to {:.2f}".format(*found)


def event_costs() -> str:
    """Return a table: the time of a step with the observer's hooks relative to one without."""
    goal = benchmark("test_event_cost").GOAL
    lines = ["| Trainer | TensorFlow | Ratio | Interval | Goal |", "| --- " * 5 + "|"]
    for run in parquet_file.load(EVIDENCE / "event-cost.parquet"):
        for (trainer, version), rows in run.measurements.groupby(["trainer", "tensorflow"]):
            values = rows.set_index("metric")["value"]
            ratio, low, high = with_interval(values, "event_cost_ratio_wall")
            met = "met" if ratio <= goal else "missed"
            interval = f"{low:.3f} to {high:.3f}"
            lines.append(f"| `{trainer}` | {version} | {ratio:.3f} | {interval} | {met} |")
    return "\n".join(lines)


@cache
def stopped_detection() -> str:
    """Return the least and most seconds in which peers detected a stopped worker."""
    found = []
    for run in parquet_file.load(EVIDENCE / "faults.parquet"):
        rows = run.measurements
        stopped = (rows["metric"] == "fault_detection_s") & (rows["fault"] == "sigstop")
        found += rows.loc[stopped, "value"].to_list()
    return f"{min(found):.1f} to {max(found):.1f} s"


VALUES: Mapping[str, Callable[[], str]] = {
    # comparisons of two sides
    "budget": lambda: seconds(Settings().budget_s),
    "upgrade-budget": lambda: seconds(upgrade.BUDGET_S),
    "turn": lambda: seconds(interleaved.TURN_S),
    "turns": lambda: str(interleaved.TURNS),
    "fewer-turns": lambda: str(interleaved.FEWER_TURNS),
    "far-apart": lambda: f"{ratio_tests.FAR_APART:g} times",
    "least-pairs": lambda: str(ratio_tests.LEAST_PAIRS),
    "family": lambda: f"{ratio_tests.FAMILY:,}",
    "floor": lambda: percent(ratio_tests.FLOOR),
    "collective-types": lambda: listed(benchmark("test_collectives").DTYPES),
    "wire-share": lambda: percent(counts.COUNTS["wire_bytes_per_step"].share),
    "heap-least": lambda: size(int(counts.COUNTS["heap_growth_bytes_per_step"].least)),
    "confidence": lambda: percent(intervals.CONFIDENCE),
    "alarms": lambda: percent(1 - intervals.CONFIDENCE),
    "malloc-keep": lambda: listed(f"`{name}={text}`" for name, text in MALLOC["keep"].items()),
    "injected": lambda: listed(map(percent, gate_trials.INJECTED)),
    "gate-requirements": gate_requirements,
    # comparisons of runs
    "drift": lambda: percent(run_levels.DRIFT),
    "drift-runs": lambda: str(run_levels.RUNS_ENOUGH),
    "change-runs": lambda: str(changepoints.FEWEST),
    "change-floor": lambda: percent(changepoints.FLOOR),
    "change-alarms": lambda: percent(changepoints.ALPHA),
    # benchmarks
    "images": lambda: f"{base.TRAIN:,}",
    "batch": lambda: str(base.WORK["batch-size"]),
    "throughput-processes": lambda: str(benchmark("test_throughput").PROCESSES[True]),
    "collective-clusters": lambda: str(benchmark("test_collectives").CLUSTERS),
    "setting-rounds": lambda: str(benchmark("test_collectives").ROUNDS),
    "startup-rounds": lambda: str(benchmark("test_startup").ENOUGH),
    "scaling-passes": lambda: str(benchmark("test_scaling").PASSES),
    "link-passes": lambda: str(benchmark("test_shaped_links").PASSES),
    "scaling-workers": lambda: listed(benchmark("test_scaling").WORKERS),
    "scaling-many": lambda: str(benchmark("test_scaling").MANY),
    "saving-workers": lambda: listed(benchmark("test_scaling").SAVED_BY),
    "smallest-collective": lambda: size(min(benchmark("test_collectives").SIZES)),
    "largest-collective": lambda: size(max(benchmark("test_collectives").SIZES)),
    "collective-workers": lambda: listed(benchmark("collective_runs").WORKERS),
    "link-speeds": link_speeds,
    "prediction": lambda: percent(1 - 1 / published_ranges.ONE_IN),
    "event-processes": lambda: str(benchmark("test_event_cost").PROCESSES),
    "event-pairs": lambda: str(benchmark("test_event_cost").PAIRS),
    "event-goal": lambda: f"{benchmark('test_event_cost').GOAL:g} times",
    "event-cost": lambda: f"{benchmark('test_event_cost').AT_MOST:g} times",
    # limits
    "detect": lambda: seconds(Deadlines().detect_s),
    "leave": lambda: seconds(Deadlines().leave_s),
    "lock-wait": lambda: f"{Deadlines().turn_s / 60:g} minutes",
    "scenario-memory": lambda: f"{prefetch.GIB_EACH:g} GiB",
    "printed": lambda: size(log_limits.MAX_PRINTED_BYTES),
    "log": lambda: size(log_limits.MAX_LOG_BYTES),
    "log-end": lambda: size(log_limits.KEPT_BYTES),
    "log-lines": lambda: str(diagnostics.LOG_LINES),
    "image-side": lambda: f"{dataset.SIDE} x {dataset.SIDE}",
    # recorded runs
    "machine": machine,
    "runner-ratio": runner_ratio,
    "event-costs": event_costs,
    "stopped-detection": stopped_detection,
}
