"""Compute throughput: pure functions over a run's history, like checks, but without a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from suite.harness.core.history import Event, Run

LEAST_STEPS, LEAST_ROUNDS = 4, 3  # that must remain after the warm-up


@dataclass(frozen=True)
class Steps:
    """The timed steps of one run, without warm-up.

    `times_s`: of each step of each worker, in seconds, from the end of the step before.
    `steps_per_s`, `examples_per_s`: of the whole cluster; None if the examples of a step are not
    known, as those of a user's program without {batch_size}.
    """

    times_s: tuple[float, ...]
    steps_per_s: float
    examples_per_s: float | None

    def quantile_s(self, percent: float) -> float:
        return float(np.percentile(self.times_s, percent))

    def measurements(self) -> Iterator[tuple[str, float, str, str]]:
        """Yield (metric, value, unit, better) of all reported numbers about steps."""
        yield "throughput_steps_per_s", self.steps_per_s, "1/s", "higher"
        if self.examples_per_s is not None:
            yield "throughput_examples_per_s", self.examples_per_s, "examples/s", "higher"
        for percent in (50, 90, 99):
            yield f"step_time_p{percent}_s", self.quantile_s(percent), "s", "lower"


def warm_up(times_s: Sequence[float] | np.ndarray, at_least: int) -> int:
    """Return how many values to drop at the start, at most half and with `at_least` left.

    That is the number that minimizes the standard error of the mean of the rest (MSER: K. P. White,
    "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
    1997). The error rises with each good value that is dropped, and falls with each slow one.
    """
    values = np.asarray(times_s, dtype=float)
    most = min(len(values) // 2, len(values) - at_least)
    errors = [np.var(values[k:]) / (len(values) - k) for k in range(max(0, most) + 1)]
    return int(np.argmin(errors))


def timed_steps(run: Run, concurrent: Sequence[Run] = ()) -> Steps:
    """Return the steps of the workers while all of them trained and were warm.

    Synchronous workers make each step together, so it counts once, as do steps that aggregate the
    gradients of all. Of other asynchronous workers every step counts. Steps before the last worker
    was warm, or after the first had finished, are left out: a worker alone is faster. `concurrent`:
    runs at the same time that competed for the same processors, so the same applies to them. The
    first step has no start event, so it never counts. `warm_up` finds how many more steps to leave
    out. Raise ValueError if a worker has fewer than two steps left.
    """
    if run.drivers != run.workers:
        return _timed_joins(run)
    begin_s, end_s = _warm_window([run, *concurrent])
    times: list[float] = []
    rates: list[float] = []
    examples: list[float] = []
    for worker in run.workers:
        timed = [e for e in run.of("step", worker) if begin_s <= e.time_s <= end_s]
        if len(timed) < 2:
            raise ValueError(f"{worker} made {len(timed)} steps while all workers trained")
        span_s = timed[-1].time_s - timed[0].time_s
        times += [b.time_s - a.time_s for a, b in pairwise(timed)]
        rates.append((len(timed) - 1) / span_s)
        examples.append(sum(_examples_of(run, e) for e in timed[1:]) / span_s)
    together = run.trainer.synchronous or run.trainer.aggregates
    rate = np.mean(rates) if together else np.sum(rates)
    return Steps(tuple(times), float(rate), _known(float(np.sum(examples))))


def _examples_of(run: Run, step: Event) -> float:
    """Return the examples of a step: as reported, or the requested batch, or NaN."""
    reported = step.get("examples")
    return run.flags.get("batch-size", math.nan) if reported is None else reported


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _warm_window(runs: Sequence[Run]) -> tuple[float, float]:
    """Return the time when all workers of all runs were warm, and when the first one finished.

    At most half of any worker's steps are left out: where processors are shared unevenly, one
    worker's warm-up can end when another worker's steps are nearly over.
    """
    made = []
    for run in runs:
        for worker in run.workers:
            made.append([e.time_s for e in run.of("step", worker)])
            if len(made[-1]) < 2:
                raise ValueError(f"{worker} made {len(made[-1])} steps, at least 2 are needed")
    begin_s, end_s = max(times[0] for times in made), min(times[-1] for times in made)
    warm_s, latest_s = begin_s, end_s
    for times in made:
        times_s = [time_s for time_s in times if begin_s <= time_s <= end_s]
        if len(times_s) > 1:
            warm_s = max(warm_s, times_s[warm_up(np.diff(times_s), LEAST_STEPS)])
            latest_s = min(latest_s, times_s[(len(times_s) - 1) // 2])
    return min(warm_s, latest_s), end_s


def _timed_joins(run: Run) -> Steps:
    """Return the steps of a coordinator, which sees only the end of a whole round.

    In a round, or an epoch of fit, all functions that it scheduled have come back. So the times are
    means over the steps of each round, with the coordinator's work between two rounds. The first
    round and further warm-up are left out. If no task reports steps, each step has the requested
    batch.
    """
    rounds = run.of(run.trainer.tick)
    if len(rounds) < 2:
        what = f"{len(rounds)} x `{run.trainer.tick}`"
        raise ValueError(f"the coordinator reported {what}, at least 2 are needed")
    times = [(b.time_s - a.time_s) / b["steps"] for a, b in pairwise(rounds)]
    cold = warm_up(times, LEAST_ROUNDS)
    warm = rounds[cold:]
    rate = sum(e["steps"] for e in warm[1:]) / (warm[-1].time_s - warm[0].time_s)
    sizes = [_examples_of(run, e) for e in (run.of("step") or rounds)]
    return Steps(tuple(times[cold:]), rate, _known(rate * float(np.mean(sizes))))
