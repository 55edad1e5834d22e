"""Metrics of clusters that trained side by side: pure functions of their histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from suite.benchmarks.training_runs import Trained
from suite.harness.core.history import Run
from suite.harness.metrics.throughput import timed_steps

STEP = "scaling_step_s"
QUANTILES = {STEP: 50, "scaling_step_p90_s": 90, "scaling_step_p99_s": 99}
# Phases before the steps: from one event to another, each at the last task that wrote it.
PHASES = (("formation", "spawned", "joined"), ("first_step", "joined", "step"))


def took(run: Run, begins: str, ends: str) -> float:
    """Return the seconds between two events, each taken when the last worker first wrote it."""
    ends_s = [max(run.of(name, task)[0].time_s for task in run.workers) for name in (begins, ends)]
    return ends_s[1] - ends_s[0]


def numbers(clusters: Sequence[Trained]) -> Iterator[tuple[str, float, str, str]]:
    """Yield (metric, value, unit, better) of one figure; the rate is of all clusters together."""
    runs = [one.run for one in clusters]
    steps = [timed_steps(run, runs) for run in runs]
    times_s = [time_s for one in steps for time_s in one.times_s]
    for name, percent in QUANTILES.items():
        yield name, float(np.percentile(times_s, percent)), "s", "lower"
    rate = sum(s.examples_per_s or 0.0 for s in steps)
    yield "scaling_examples_per_s", rate, "examples/s", "higher"
    yield "scaling_cpu_s", sum(one.cpu_s for one in clusters), "s", "lower"
    phases = {name: max(took(run, *ends) for run in runs) for name, *ends in PHASES}
    for name, seconds in phases.items():
        yield f"scaling_{name}_s", seconds, "s", "lower"
    # The difference between the first step and a warm step.
    tracing_s = phases["first_step"] - float(np.median(times_s))
    yield "scaling_tracing_s", tracing_s, "s", "lower"
    memory_mib = max(one.peak_memory_mib for one in clusters)
    yield "scaling_peak_memory_mib", memory_mib, "MiB", "lower"


def communication_share(apart_s: float, together_s: float) -> float:
    """Return the share of a step that is not computation.

    It is 0 to 1, or below 0 if the common cluster is faster. `apart_s`: a step of the same number
    of processes side by side, each in its own cluster. `together_s`: a step of their common
    cluster.
    """
    return 1 - apart_s / together_s
