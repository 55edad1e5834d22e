"""Scenarios for programs of which nothing is known but their processes.

Without events the harness cannot see when a program trains. A signal is sent when half the time
that a run without faults took has passed.
"""

from __future__ import annotations

import signal

from suite.harness.cluster.cluster import Cluster
from suite.harness.core.history import Run
from suite.harness.scenarios import crashes
from suite.harness.scenarios.base import Launch, give_time, give_time_to_end, work
from suite.harness.scenarios.fault_free import healthy


def half_s(launch: Launch) -> float:
    """Return half the time from the start of the last task to the first end of a driver."""
    run: Run = launch.outcome(healthy)
    began_s = max(e.time_s for e in run.of("spawned"))
    return (min(run.exit_of(task).time_s for task in run.drivers) - began_s) / 2  # type: ignore[union-attr]


def _run_half(launch: Launch, cluster: Cluster) -> None:
    cluster.start()
    give_time(cluster, half_s(launch), lambda run: any(map(run.exit_of, run.drivers)))


def terminated(launch: Launch) -> Run:
    """Send SIGTERM to all drivers halfway, as a scheduler does, and kill those that ignore it."""
    with launch(flags=work(launch)) as cluster:
        _run_half(launch, cluster)
        for task in cluster.drivers:
            cluster.signal(task, signal.SIGTERM, fault="sigterm")
        crashes.end_of_peers(launch, cluster, list(cluster.drivers))
        return cluster.run()


def killed(launch: Launch) -> Run:
    """Kill the last worker halfway, and record the reaction of its peers."""
    with launch(flags=work(launch)) as cluster:
        _run_half(launch, cluster)
        *survivors, lost = cluster.workers
        crashes.kill(cluster, lost)
        give_time_to_end(cluster, survivors, launch.engine.deadlines.detect_s)
        crashes.end_of_peers(launch, cluster, survivors)
        return cluster.run()
