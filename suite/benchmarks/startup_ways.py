"""Fresh clusters to their first all-reduce, started in three ways that are timed alike.

All run suite/programs/all_reduce.py and are timed from the moment they are asked for. Three ends
are taken, since the ways differ in what comes between them:

- reduced_s: the last worker has the value, by its own clock (CLOCK_MONOTONIC is the machine's).
- known_s: whoever asked has it, checked. A call of multi_process_runner gives it when the processes
  have ended and its watch-dog, which looks once a second, has noticed; there is no other way to it.
- gone_s: everything that was started has ended, and the next cluster may start.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from suite.harness.cluster.cluster import Cluster
from suite.harness.core.errors import CheckFailed, HarnessError
from suite.harness.core.history import Event
from suite.harness.scenarios import small_programs
from suite.harness.session.session import Launch

HELD = {**small_programs.NOT_TAKEN, "hold": True}
NEEDED = ("dill", "portpicker")  # by multi_process_runner


@dataclass(frozen=True)
class Fresh:
    """One cluster's life in seconds since it was asked for; see the module's docstring."""

    reduced_s: float
    known_s: float
    gone_s: float

    def measurements(self) -> Iterator[tuple[str, float]]:
        """(metric, seconds), what the others are compared by first."""
        yield "cluster_first_all_reduce_s", self.known_s
        yield "cluster_reduced_inside_s", self.reduced_s
        yield "cluster_whole_life_s", self.gone_s


def check_values(events: Sequence[Event], workers: int) -> None:
    """Worker i, counted from 1, gave i: all must have got the sum."""
    expected = workers * (workers + 1) / 2
    got = [e["value"] for e in events]
    if got != [expected] * workers:
        raise CheckFailed(f"{workers} workers must each get {expected}, they got {got}")


def all_reduced(cluster: Cluster) -> float:
    """Wait until every worker has the right value; when the last of them had it, on its clock."""
    for worker in cluster.workers:
        cluster.wait_for("reduced", worker)
    events = cluster.run().of("reduced")
    check_values(events, len(cluster.workers))
    return max(e.time_s for e in events)


def by_harness(launch: Launch) -> Fresh:
    """A 2-worker cluster of the suite's, forked or executed as the engine does it."""
    trainer = small_programs.program(launch, "all_reduce", flags=("backend",))
    begin_s = time.monotonic()
    with launch(trainer, jobs=(("worker", 2),), flags=HELD) as cluster:
        cluster.start()
        reduced_s = all_reduced(cluster)
        known_s = time.monotonic()
    return Fresh(reduced_s - begin_s, known_s - begin_s, time.monotonic() - begin_s)


@contextlib.contextmanager
def cold(launch: Launch, name: str = "exec") -> Iterator[Launch]:
    """`launch` that starts plain processes, each of which imports TensorFlow; `name` its files."""
    engine = launch.engine.apart(f"{name}-", spawn="exec")
    try:
        yield replace(launch, session=replace(launch.session, engine=engine))
    finally:
        engine.stop()


@contextlib.contextmanager
def warm_runner(launch: Launch) -> Iterator[Callable[[], Fresh]]:
    """TensorFlow's multi_process_runner in a process that stays; each call is one more cluster.

    The first call starts its fork server, which imports TensorFlow: leave it out. HarnessError
    where the tasks' interpreter lacks what it needs. Unsupported without namespaces.
    """
    launch.engine.network.check_own_ports("multi_process_runner")
    python = launch.engine.python
    tried = subprocess.run([python, "-c", f"import {', '.join(NEEDED)}"], capture_output=True)
    if tried.returncode:
        raise HarnessError(
            f"{python}: multi_process_runner needs {' and '.join(NEEDED)}: pip install them there"
        )
    trainer = small_programs.alone(launch, "multi_process_runner")
    with cold(launch, "runner") as alone, alone(trainer, flags=small_programs.NOT_TAKEN) as cluster:
        cluster.start()
        cluster.wait_for("served")
        number = 0

        def another() -> Fresh:
            nonlocal number
            number += 1
            begin_s = time.monotonic()
            cluster.signal("worker/0", signal.SIGUSR1)
            served = cluster.wait_for("served", where=lambda e: e["clusters"] == number)
            events = cluster.run().of("reduced", attempt=number)
            check_values(events, 2)
            if served["values"] != [e["value"] for e in events]:
                raise CheckFailed(f"the runner returned {served['values']}")
            reduced_s = max(e.time_s for e in events)
            return Fresh(*(end_s - begin_s for end_s in (reduced_s, served.time_s, served.time_s)))

        yield another
