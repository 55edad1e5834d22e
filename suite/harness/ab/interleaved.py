"""Measures two sides as one: fresh processes of both, in pairs, which take turns.

What disturbs one side's turn disturbs the other's next to it, so that their ratio is told far
better than either time. What differs from process to process (in which order TensorFlow runs what
nothing orders, memory layout) is the same in all turns of one, and only further processes show it:
each pair starts anew, from the interpreter on. Most of that was glibc's malloc, which gives memory
back in each step, more in one process than in the next, so here it keeps it unless --malloc says
otherwise.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suite.harness.ab.sides import AS_DOCUMENTED, Side
from suite.harness.cluster.cluster import Cluster
from suite.harness.core.deadlines import wait_until
from suite.harness.core.errors import HarnessError
from suite.harness.core.history import Run
from suite.harness.metrics.interference import Watch
from suite.harness.scenarios import base as staging
from suite.harness.scenarios import small_programs
from suite.harness.scenarios.base import Launch
from suite.harness.session.session import Launch as SessionLaunch

TURN_S = 0.05  # long against a hand-over, short against what disturbs
# Of each side in a pair, or fewer in the same time. More of them show little that is new of the
# same processes: pairs differ by more than their turns' scatter (`python -m reports trials`).
TURNS = 60
# Where processes are what differs, the rest of the budget goes to more of them. The best division
# is by variances and costs (Kalibera and Jones, ISMM 2013); here the turns have the budget, and at
# 24 of them the processes' variance is still twice that of the turns.
FEWER_TURNS = 24
LEAST_TURNS = 6  # however small the budget and long the steps
LOOK_S = 0.25  # how often to look whether they are over: it takes CPU from what is timed


@dataclass(frozen=True)
class Pair:
    """One pair of processes or clusters: seconds per step of each turn, by side, in order.

    `workers`: of each side's cluster, which may be fewer than its trainer's (see cluster_of).
    `start_up_s`: from the start until warm, import and tracing included, of both at once;
    `collective`: what TensorFlow really reduced by.
    `steal`, `foreign`: see machine.Watch. `timed_s`: in all turns, of the side that was faster.
    """

    times_s: dict[str, list[float]]
    workers: dict[str, int]
    start_up_s: dict[str, float]
    collective: dict[str, str]
    steal: float
    foreign: float
    timed_s: float

    @property
    def log_ratios(self) -> np.ndarray:
        """Of each turn of `new` to that of `base` next to it."""
        return np.log(np.array(self.times_s["new"]) / np.array(self.times_s["base"]))


@contextlib.contextmanager
def launches(launch: SessionLaunch, sides: Sequence[Side]) -> Iterator[list[SessionLaunch]]:
    """A launch for each side, with an engine of its own that starts plain processes."""
    engines = [
        launch.engine.apart(
            f"{side.name}-",
            python=side.interpreter.python,
            flavours={side.case.keras: side.interpreter.environment(side.case.keras)},
            spawn="exec",
            malloc=launch.session.settings.malloc or "keep",
        )
        for side in sides
    ]
    try:
        yield [
            replace(launch, case=side.case, session=replace(launch.session, engine=engine))
            for side, engine in zip(sides, engines, strict=True)
        ]
    finally:
        for engine in engines:
            engine.stop()


def cluster_of(launch: Launch, own: dict[str, Any], how: dict[str, Any]) -> Cluster:
    """A cluster that trains without end; its leader has the flags `own`, and takes turns."""
    row = launch.case.trainer
    coordinated = staging.coordinated(row)
    timed = small_programs.program(launch, "paired_trainer", flags=row.flags)
    flags = {**_endless(launch), "program": row.program}
    if row.path == AS_DOCUMENTED:
        flags["approach"] = row.name
    # Asynchronous workers would each need turns of their own; one alone is the same code.
    workers = None if row.synchronous or coordinated else 1
    cluster = launch(timed, workers=workers, flags={**flags, **how, "tick": row.tick})
    cluster.plan = replace(cluster.plan, task_flags={cluster.drivers[0]: own})
    return cluster


def _endless(launch: Launch) -> dict[str, Any]:
    model = launch.case.trainer.model or None
    return staging.endless_work(launch, staging.EPOCH_STEPS, model=model)


def documented(launch: Launch) -> Run:
    """The bare calls of the case's document, alone, until every driver has made a few steps.

    Of a coordinator: a few rounds, of as many steps as it schedules at once, or epochs.
    """
    row = replace(launch.case.trainer, path=AS_DOCUMENTED)
    flags = {**_endless(launch), "approach": row.name}
    with launch(row, flags=flags) as cluster:
        cluster.start()
        staging.wait_all_step(cluster, event=row.tick)
        return cluster.run()


def measured(launches: Sequence[Launch], number: int, slow_down: float, turns: int) -> Pair:
    """One pair, base and new; who starts first and has the first turn alternates with `number`."""
    with tempfile.TemporaryDirectory(prefix="turns-") as directory:
        path = Path(directory) / "turn"
        how = {"count": turns, "least": LEAST_TURNS, "turn": TURN_S}
        first = number % 2
        owns = [{"turns": path, "first": place == first} for place in (0, 1)]
        owns[1]["slow-down"] = slow_down or None
        base, new = (cluster_of(*side, how) for side in zip(launches, owns, strict=True))
        if slow_down and len(new.drivers) > 1:
            told = "planted where one process leads; several wait for each other's planted time too"
            raise HarnessError(f"--slow-down: {told}")
        with base, new:
            began_s = time.monotonic()
            with Watch() as watch:
                for cluster in (base, new)[:: -1 if first else 1]:
                    cluster.start()
                clusters = {"base": base, "new": new}
                _wait_for_turns((base, new))
            runs = {name: cluster.run() for name, cluster in clusters.items()}
    told = {name: run.of("timed") for name, run in runs.items()}
    # The slower side may have had its time a turn earlier.
    both = min(len(events) for events in told.values())
    told = {name: events[:both] for name, events in told.items()}
    return Pair(
        {name: [e["wall_s"] / e["steps"] for e in events] for name, events in told.items()},
        {name: len(run.workers) for name, run in runs.items()},
        {name: run.of("warm")[0].time_s - began_s for name, run in runs.items()},
        {name: run.collective for name, run in runs.items()},
        watch.steal,
        watch.foreign,
        min(sum(event["wall_s"] for event in events) for events in told.values()),
    )


def _wait_for_turns(clusters: Sequence[Cluster]) -> None:
    """Until both have had all; where one cannot, its error, and not that the other waits for it."""
    looked = dict.fromkeys(range(len(clusters)), 0)  # of the history, which has all steps
    through: set[int] = set()

    def over() -> bool:
        for place, cluster in enumerate(clusters):
            if cluster.drivers[0] not in cluster.alive():
                return True
            news = cluster.history[looked[place] :]
            looked[place] += len(news)
            if any(event.name == "timed" and event["last"] for event in news):
                through.add(place)
        return len(through) == len(clusters)

    with contextlib.suppress(TimeoutError):
        wait_until("all turns", over, clusters[0].deadlines.run_s, LOOK_S)
    ended_first = sorted(clusters, key=lambda cluster: cluster.drivers[0] in cluster.alive())
    for cluster in ended_first:
        cluster.wait_for("timed", cluster.drivers[0], where=lambda event: event["last"])


def measure(launches: Sequence[Launch], budget_s: float, slow_down: float = 0.0) -> Iterator[Pair]:
    """Pairs, until they are enough for the gate or `budget_s` of timed steps a side are spent."""
    from reports.stats import ratio_tests  # with SciPy, which only what measures has to wait for

    turns = min(TURNS, max(LEAST_TURNS, int(budget_s / TURN_S / ratio_tests.LEAST_PAIRS)))
    found: list[np.ndarray] = []
    spent_s = 0.0
    while spent_s < budget_s and not ratio_tests.enough(found):
        if ratio_tests.far_apart(found):
            turns = min(turns, FEWER_TURNS)
        pair = measured(launches, len(found), slow_down, turns)
        found.append(pair.log_ratios)
        spent_s += pair.timed_s
        yield pair
