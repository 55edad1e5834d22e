"""Numbers about a step that do not depend on time: operations, traces, bytes sent, memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from statistics import fmean, median

from suite.harness.core.history import Event, Run

# Signs that a task has made its first step; a coordinator reports its steps only later.
STEP_MADE = ("step", "epoch", "scheduled", "executed")
WARM_STEP = 10  # before it, buffers and pools are still growing
LEAST_SAMPLES = 4  # for a slope
NETWORK = "/proc/self/ns/net"
SHARED = 0  # in place of the number of a network that others use, too
UNITS = {
    "step_operations": "1",
    "step_collectives": "1",
    "step_collective_bytes": "B",
    "retracings": "1",
    "wire_bytes_per_step": "B",
    "wire_bytes_per_collective": "B",
    "heap_growth_bytes_per_step": "B",
}


def counts(run: Run) -> dict[str, float]:
    """Return the numbers of a step by metric, as far as the history has them.

    step_operations, step_collectives: number of operations in the last graph that was traced of the
    function that trains, and of those that exchange tensors between replicas, in one task.
    step_collective_bytes: size of these tensors. DTensor adds its collectives after the trace, so
    it has neither. retracings: traces after the first step. wire_bytes_per_step: sent by all tasks,
    with headers, acknowledgements and heartbeats.
    """
    found: dict[str, float] = {}
    graph = step_graph(run)
    if graph is not None:
        found["step_operations"] = graph["operations"]
        if "dtensor" not in run.trainer.families:
            found["step_collectives"] = graph["collectives"]
            if graph["collective_bytes"] is not None:
                found["step_collective_bytes"] = graph["collective_bytes"]
        found["retracings"] = max(map(len, retraced(run).values()))
    sent = wire_bytes_per_step(run) if len(run.tasks) > 1 else None
    if sent is not None:
        found["wire_bytes_per_step"] = sent
        if graph is not None and graph["collectives"]:
            found["wire_bytes_per_collective"] = sent / graph["collectives"]
    return found


def of_long_run(run: Run) -> dict[str, float]:
    """Return `counts`, and heap_growth_bytes_per_step: the mean over the drivers.

    In a run of a few epochs, work between them hides the growth.
    """
    growths = [heap_growth(run, driver) for driver in run.drivers]
    known = [growth for growth in growths if growth is not None]
    return {**counts(run), **({"heap_growth_bytes_per_step": fmean(known)} if known else {})}


def measurements(run: Run) -> Iterator[tuple[str, float, str, str]]:
    """Yield (metric, value, unit, better) of `counts`.

    What asynchronous workers send depends on their order, so it has no better direction.
    """
    for metric, value in counts(run).items():
        varies = metric == "wire_bytes_per_step" and not run.trainer.synchronous
        is_judged = metric != "wire_bytes_per_collective" and not varies
        yield metric, value, UNITS[metric], "lower" if is_judged else "none"


def step_graph(run: Run) -> Event | None:
    """Return the last `traced` of the first task that drives the training; None without one."""
    return next(reversed(run.of("traced", run.drivers[0])), None)


def retraced(run: Run) -> dict[str, list[Event]]:
    """Return the `traced` events of each driver after its first step, of its first attempt."""
    found = {}
    for driver in run.drivers:
        steps = [e.time_s for e in run.events if e.name in STEP_MADE and e.task == driver]
        traces = run.of("traced", driver, 0)
        found[driver] = [e for e in traces if steps and e.time_s > min(steps)]
    return found


def wire_bytes_per_step(run: Run) -> float | None:
    """Return the bytes that all tasks sent for one step; None if the network is not their own.

    Tasks may share a network, so each network counts once. The median over the spans between two
    `resources` events of one task within an epoch; without such spans, or if steps are counted by
    the coordinator or by several workers together, the mean over all of them.
    """
    networks: dict[int, list[Event]] = {}
    for driver in run.drivers:
        for event in run.of("resources", driver, 0):
            own = networks.setdefault(event["network"], [])
            if not own or own[0].task == driver:
                own.append(event)
    if not networks or networks.keys() & {SHARED, os.stat(NETWORK).st_ino}:
        return None
    rates = [_rate(run, samples) for samples in networks.values()]
    return None if None in rates else sum(rate for rate in rates if rate is not None)


def _rate(run: Run, samples: Sequence[Event]) -> float | None:
    within = spans(run, samples) if run.trainer.synchronous and run.drivers == run.workers else []
    rates = [_sent(*span) / steps for *span, steps in within]
    if rates:
        return float(median(rates))
    steps = samples[-1]["global_step"] - samples[0]["global_step"]
    return _sent(samples[0], samples[-1]) / steps if steps > 0 else None


def _sent(first: Event, last: Event) -> float:
    return last["sent_bytes"] - first["sent_bytes"]


def spans(run: Run, samples: Sequence[Event]) -> list[tuple[Event, Event, int]]:
    """Return consecutive samples of one task within an epoch, and the steps between them."""
    found = []
    for first, last in pairwise(samples):
        ends = [e for e in run.of("epoch", first.task) if first.time_s <= e.time_s <= last.time_s]
        steps = last["step"] - first["step"]
        if steps > 0 and not ends:
            found.append((first, last, steps))
    return found


def heap_growth(run: Run, task: str) -> float | None:
    """Return by how many bytes a step the memory given out by malloc grew; None if unknown.

    The slope of Theil and Sen, the median of the slopes between all samples, without the first
    steps: a buffer that is in use for a few samples has little effect on it.
    """
    samples = [
        (e["step"], e["heap_bytes"])
        for e in run.of("resources", task, 0)
        if e["step"] >= WARM_STEP and e["heap_bytes"] is not None
    ]
    slopes = [
        (later - sooner) / (last - first)
        for (first, sooner), (last, later) in combinations(samples, 2)
        if last > first
    ]
    return float(median(slopes)) if len(samples) >= LEAST_SAMPLES else None
