"""End a program of a user by SIGTERM: in training, or, without events, early in its run."""

from __future__ import annotations

import signal

from suite.harness.cluster.cluster import Cluster
from suite.harness.core.case import Case
from suite.harness.core.errors import NotExamined
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared
from suite.harness.scenarios import crashes
from suite.harness.scenarios.base import Launch, give_time, work
from suite.harness.scenarios.fault_free import healthy


def quarter_s(launch: Launch) -> float:
    """Return a quarter of the time from the start of the last task to the first end of a driver.

    A second run of a program may take half as long as its first, which fills the file caches.
    """
    run: Run = launch.outcome(healthy)
    began_s = max(e.time_s for e in run.of("spawned"))
    return (min(run.exit_of(task).time_s for task in run.drivers) - began_s) / 4  # type: ignore[union-attr]


def terminated(launch: Launch) -> Compared:
    """Send SIGTERM to all drivers in training, as a scheduler does; kill those that ignore it."""
    with launch(flags=work(launch)) as cluster:
        crashes.start_and_train(launch, cluster)
        return _end(launch, cluster)


def terminated_early(launch: Launch) -> Compared:
    """Do the same to a program without events, when a quarter of the usual time has passed."""
    wait_s = quarter_s(launch)  # waits for that run, so before the start
    with launch(flags=work(launch)) as cluster:
        cluster.start()
        give_time(cluster, wait_s, lambda run: any(map(run.exit_of, run.drivers)))
        return _end(launch, cluster)


def _end(launch: Launch, cluster: Cluster) -> Compared:
    alive = set(cluster.drivers) & set(cluster.alive())
    if not alive:
        raise NotExamined(
            "it ended before a quarter of the time of its run without faults had passed"
        )
    for task in alive:
        cluster.signal(task, signal.SIGTERM, fault="sigterm")
    for task in cluster.drivers:
        cluster.let_go(task)
    crashes.end_of_peers(launch, cluster, list(cluster.drivers))
    return Compared(cluster.run(), launch.outcome(healthy))


def _reports_steps(case: Case) -> bool:
    return "step" in case.trainer.events


terminated.means = _reports_steps  # type: ignore[attr-defined]
terminated_early.means = lambda case: not _reports_steps(case)  # type: ignore[attr-defined]
