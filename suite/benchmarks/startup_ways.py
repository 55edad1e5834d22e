"""Three ways to start a fresh cluster, timed alike up to its first all-reduce.

All run suite/programs/all_reduce.py and are timed from the request. Three end times are recorded,
because the ways differ in the work between them:

- reduced_s: the last worker has the value, by its own clock (CLOCK_MONOTONIC is machine-wide).
- known_s: the caller has the value, checked. multi_process_runner returns it after the processes
  have exited and its watchdog, which polls once a second, has detected that; it has no other way.
- gone_s: all started processes have exited, and the next cluster may start.
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
class StartupTimes:
    """The timings of one cluster in seconds since its request; see the module's docstring."""

    reduced_s: float
    known_s: float
    gone_s: float

    def measurements(self) -> Iterator[tuple[str, float]]:
        """Yield (metric, seconds), first the metric for comparisons."""
        yield "cluster_first_all_reduce_s", self.known_s
        yield "cluster_reduced_inside_s", self.reduced_s
        yield "cluster_whole_life_s", self.gone_s


def check_values(events: Sequence[Event], workers: int) -> None:
    """Raise CheckFailed unless all workers have the sum.

    Worker i, counted from 1, contributed i.
    """
    expected = workers * (workers + 1) / 2
    got = [e["value"] for e in events]
    if got != [expected] * workers:
        raise CheckFailed(f"{workers} workers must each get {expected}, they got {got}")


def all_reduced(cluster: Cluster) -> float:
    """Wait until every worker has the right value, and return the time of the last.

    The time is by that worker's clock.
    """
    for worker in cluster.workers:
        cluster.wait_for("reduced", worker)
    events = cluster.run().of("reduced")
    check_values(events, len(cluster.workers))
    return max(e.time_s for e in events)


def by_harness(launch: Launch, workers: int = 2) -> StartupTimes:
    """Start a cluster of the harness, whose tasks start as the engine is configured."""
    trainer = small_programs.program(launch, "all_reduce", flags=("backend",))
    begin_s = time.monotonic()
    with launch(trainer, jobs=(("worker", workers),), flags=HELD) as cluster:
        cluster.start()
        reduced_s = all_reduced(cluster)
        known_s = time.monotonic()
    return StartupTimes(reduced_s - begin_s, known_s - begin_s, time.monotonic() - begin_s)


@contextlib.contextmanager
def cold(launch: Launch, name: str = "exec") -> Iterator[Launch]:
    """Yield a `launch` that starts plain processes, each of which imports TensorFlow.

    `name`: prefix of their files.
    """
    engine = launch.engine.apart(f"{name}-", spawn="exec")
    try:
        yield replace(launch, session=replace(launch.session, engine=engine))
    finally:
        engine.stop()


@contextlib.contextmanager
def warm_runner(launch: Launch) -> Iterator[Callable[[], StartupTimes]]:
    """Yield a function that starts one more cluster of TensorFlow's multi_process_runner.

    The runner's process persists. The first call starts its fork server, which imports TensorFlow:
    leave it out. Raise HarnessError if the tasks' interpreter lacks a package that the runner
    needs, and Unsupported without namespaces.
    """
    launch.engine.network.check_own_ports("multi_process_runner")
    python = launch.engine.python
    tried = subprocess.run([python, "-c", f"import {', '.join(NEEDED)}"], capture_output=True)
    if tried.returncode:
        raise HarnessError(
            f"{python}: multi_process_runner needs {' and '.join(NEEDED)}: install the extra with "
            "pip install -e '.[benchmarks]', or both packages in that environment"
        )
    trainer = small_programs.alone(launch, "multi_process_runner")
    with cold(launch, "runner") as alone, alone(trainer, flags=small_programs.NOT_TAKEN) as cluster:
        cluster.start()
        cluster.wait_for("served")
        number = 0

        def another() -> StartupTimes:
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
            return StartupTimes(
                *(end_s - begin_s for end_s in (reduced_s, served.time_s, served.time_s))
            )

        yield another
