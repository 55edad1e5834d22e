"""Measure two sides interleaved: pairs of fresh processes, one of each side, that alternate turns.

A disturbance of one side's turn also hits the other side's adjacent turn, so their ratio is far
more precise than either time. The difference between processes (the order in which TensorFlow runs
unordered ops, memory layout) is the same in all turns of one process. Only more processes show it,
so each pair starts anew, from the interpreter on. Most of that difference was due to glibc's
malloc, which returns memory in each step, more in one process than in the next. Here malloc keeps
freed memory unless --malloc says otherwise.
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

from suite.harness.ab.sides import Side, makes_documents_calls, with_documents_calls
from suite.harness.cluster.cluster import Cluster
from suite.harness.core.deadlines import wait_until
from suite.harness.core.errors import HarnessError
from suite.harness.core.history import Run
from suite.harness.metrics import step_counts
from suite.harness.metrics.interference import Watch
from suite.harness.scenarios import small_programs
from suite.harness.scenarios.base import (
    EPOCH_STEPS,
    Launch,
    coordinated,
    endless_work,
    program,
    wait_all_step,
    wait_training,
)
from suite.harness.session.session import Launch as SessionLaunch

TURN_S = 0.05  # long compared to a handover, short compared to disturbances
# Limit of turns of each side in a pair; long steps get fewer turns in the same time. More turns add
# little about the same processes: pairs differ by more than the scatter of their turns (`python -m
# suite.campaigns trials`).
TURNS = 60
# Turns per pair where processes differ, so that the rest of the budget goes to more processes. The
# best division is by variances and costs (Kalibera and Jones, ISMM 2013). Here turns get the
# budget, and at 24 turns the variance of the processes is still twice that of the turns.
FEWER_TURNS = 24
LEAST_TURNS = 6  # even with a small budget and long steps
LOOK_S = 0.25  # polling interval; polling takes CPU from the timed processes


@dataclass(frozen=True)
class Pair:
    """One pair of processes or clusters: seconds per step of each turn, by side, in order.

    `workers`: of each side's cluster, maybe fewer than its trainer's (see cluster_of).
    `counts`: what does not depend on time, by side and metric, see metrics/step_counts.py.
    `start_up_s`: from the start of both sides until the side is warm, import and tracing included.
    `collective`: the implementation that TensorFlow chose. `steal`, `foreign`: see
    interference.Watch. `timed_s`: in all turns, of the faster side. `control`: log ratios of the
    turns of two processes of the base, which were measured after this pair.
    """

    times_s: dict[str, list[float]]
    workers: dict[str, int]
    counts: dict[str, dict[str, float]]
    start_up_s: dict[str, float]
    collective: dict[str, str]
    steal: float
    foreign: float
    timed_s: float
    control: np.ndarray | None = None

    @property
    def log_ratios(self) -> np.ndarray:
        """Return the log of the ratio of each `new` turn to the adjacent `base` turn."""
        return np.log(np.array(self.times_s["new"]) / np.array(self.times_s["base"]))


@contextlib.contextmanager
def launches(launch: SessionLaunch, sides: Sequence[Side]) -> Iterator[list[SessionLaunch]]:
    """Yield a launch for each side, with its own engine that starts plain processes."""
    engines = [
        launch.engine.apart(
            f"{side.name}-",
            python=side.interpreter.python,
            flavors={side.case.keras: side.environment},
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
    """Return a cluster that trains endlessly; its leader has the flags `own` and takes turns."""
    row = launch.case.trainer
    theirs = {**how, "program": row.program, "tick": row.tick}
    if row.of_user:
        timed = small_programs.around(launch, "paired_trainer", theirs, spawn="exec")
        flags = _endless(launch)
    else:
        timed = program(launch, "paired_trainer", flags=row.flags, plain=row.plain)
        flags = {**_endless(launch), **theirs}
    if makes_documents_calls(row):
        flags["approach"] = row.name
    # Asynchronous workers would each need their own turns. A single worker runs the same code.
    workers = None if row.synchronous or coordinated(row) else 1
    cluster = launch(timed, workers=workers, flags=flags)
    cluster.plan = replace(cluster.plan, task_flags={cluster.drivers[0]: own})
    return cluster


def _endless(launch: Launch) -> dict[str, Any]:
    model = launch.case.trainer.model or None
    return endless_work(launch, EPOCH_STEPS, model=model)


def documented(launch: Launch) -> Run:
    """Run the snippets of the case's document until every driver has made a few steps.

    A coordinator makes a few epochs, or rounds of as many steps as it schedules at once.
    """
    row = with_documents_calls(launch.case.trainer)
    flags = {**_endless(launch), "approach": row.name}
    with launch(row, flags=flags) as cluster:
        cluster.start()
        wait_all_step(cluster, event=row.tick)
        return cluster.run()


def measured(launches: Sequence[Launch], number: int, slow_down: float, turns: int) -> Pair:
    """Return one pair, base and new; the side that starts first alternates with `number`.

    That side also has the first turn.
    """
    with tempfile.TemporaryDirectory(prefix="turns-") as directory:
        path = Path(directory) / "turn"
        how = {"count": turns, "least": LEAST_TURNS, "turn": TURN_S}
        first = number % 2
        owns = [{"turns": path, "first": place == first} for place in (0, 1)]
        owns[1]["slow-down"] = slow_down or None
        base, new = (cluster_of(*side, how) for side in zip(launches, owns, strict=True))
        if slow_down and len(new.drivers) > 1:
            raise HarnessError(
                "--slow-down: needs a single leading process; several would also wait for each "
                "other's injected delay"
            )
        with base, new:
            began_s = time.monotonic()
            with Watch() as watch:
                for cluster in (base, new)[:: -1 if first else 1]:
                    cluster.start()
                clusters = {"base": base, "new": new}
                _wait_for_turns((base, new))
            runs = {name: cluster.run() for name, cluster in clusters.items()}
    timed = {name: run.of("timed") for name, run in runs.items()}
    # The slower side may have reached the time limit a turn earlier.
    common = min(len(events) for events in timed.values())
    timed = {name: events[:common] for name, events in timed.items()}
    return Pair(
        {name: [e["wall_s"] / e["steps"] for e in events] for name, events in timed.items()},
        {name: len(run.workers) for name, run in runs.items()},
        {name: step_counts.of_long_run(run) for name, run in runs.items()},
        {name: run.of("warm")[0].time_s - began_s for name, run in runs.items()},
        {name: run.collective for name, run in runs.items()},
        watch.steal,
        watch.foreign,
        min(sum(event["wall_s"] for event in events) for events in timed.values()),
    )


def _wait_for_turns(clusters: Sequence[Cluster]) -> None:
    """Wait until both sides have had all turns; if one side fails, raise its own error.

    That error comes before the other side's, which only waits for the failed side.
    """
    looked = dict.fromkeys(range(len(clusters)), 0)  # read position in each history
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
        wait_training(cluster, "timed", cluster.drivers[0], where=lambda event: event["last"])


def measure(
    launches: Sequence[Launch],
    budget_s: float,
    slow_down: float = 0.0,
    control: Sequence[Launch] = (),
) -> Iterator[Pair]:
    """Yield pairs until they suffice for the gate or use up the budget.

    The budget, `budget_s`, is of timed steps of each side. `control`: two launches of the base, of
    which a pair is measured after each pair, outside the budget.
    """
    from reports.stats import ratio_tests  # imports SciPy, so only measuring tests wait for it

    turns = min(TURNS, max(LEAST_TURNS, int(budget_s / TURN_S / ratio_tests.LEAST_PAIRS)))
    found: list[np.ndarray] = []
    spent_s = 0.0
    while spent_s < budget_s and not ratio_tests.enough(found):
        if ratio_tests.far_apart(found):
            turns = min(turns, FEWER_TURNS)
        pair = measured(launches, len(found), slow_down, turns)
        if control:
            own = measured(control, len(found), 0.0, turns)
            pair = replace(pair, control=own.log_ratios)
        found.append(pair.log_ratios)
        spent_s += pair.timed_s
        yield pair
