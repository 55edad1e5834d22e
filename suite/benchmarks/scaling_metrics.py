"""What is told of clusters that trained side by side: pure functions over what they left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from suite.benchmarks.training_runs import Trained
from suite.harness.core.history import Run
from suite.harness.metrics.throughput import timed_steps

STEP = "scaling_step_s"
QUANTILES = {STEP: 50, "scaling_step_p90_s": 90, "scaling_step_p99_s": 99}
# What comes before the steps: from one event to another, by the last task that told it.
PHASES = (("formation", "spawned", "joined"), ("first_step", "joined", "step"))


def took(run: Run, begins: str, ends: str) -> float:
    """Seconds from when all tasks had told the one event to when all had told the other, first."""
    moments = [max(run.of(name, task)[0].time_s for task in run.workers) for name in (begins, ends)]
    return moments[1] - moments[0]


def numbers(clusters: Sequence[Trained]) -> Iterator[tuple[str, float, str, str]]:
    """(metric, value, unit, better) of one figure; the rate is of all clusters together."""
    runs = [one.run for one in clusters]
    steps = [timed_steps(run, runs) for run in runs]
    times_s = [time_s for one in steps for time_s in one.times_s]
    for name, percent in QUANTILES.items():
        yield name, float(np.percentile(times_s, percent)), "s", "lower"
    yield "scaling_examples_per_s", sum(s.examples_per_s for s in steps), "examples/s", "higher"
    yield "scaling_cpu_s", sum(one.cpu_s for one in clusters), "s", "lower"
    phases = {name: max(took(run, *ends) for run in runs) for name, *ends in PHASES}
    for name, seconds in phases.items():
        yield f"scaling_{name}_s", seconds, "s", "lower"
    # What the first step takes longer than one that is warm.
    tracing_s = phases["first_step"] - float(np.median(times_s))
    yield "scaling_tracing_s", tracing_s, "s", "lower"
    memory_mib = max(one.peak_memory_mib for one in clusters)
    yield "scaling_peak_memory_mib", memory_mib, "MiB", "lower"


def communication_share(apart_s: float, together_s: float) -> float:
    """What of a step is not computing: 0 to 1, or below 0 where they are faster together.

    `apart_s`: of a step of as many processes side by side, each by itself; `together_s`: of their
    cluster's.
    """
    return 1 - apart_s / together_s
