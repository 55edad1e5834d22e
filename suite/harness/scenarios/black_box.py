"""Scenarios for programs of which nothing is known but their processes.

Without events the harness cannot see when a program trains. A signal is sent when half the time
that a run without faults took has passed.
"""

from __future__ import annotations

import signal

from suite.harness.core.history import Run
from suite.harness.scenarios import crashes
from suite.harness.scenarios.base import Launch, give_time, work
from suite.harness.scenarios.fault_free import healthy


def half_s(launch: Launch) -> float:
    """Return half the time from the start of the last task to the first end of a driver."""
    run: Run = launch.outcome(healthy)
    began_s = max(e.time_s for e in run.of("spawned"))
    return (min(run.exit_of(task).time_s for task in run.drivers) - began_s) / 2  # type: ignore[union-attr]


def terminated(launch: Launch) -> Run:
    """Send SIGTERM to all drivers halfway, as a scheduler does, and kill those that ignore it."""
    with launch(flags=work(launch)) as cluster:
        cluster.start()
        give_time(cluster, half_s(launch), lambda run: any(map(run.exit_of, run.drivers)))
        for task in set(cluster.drivers) & set(cluster.alive()):
            cluster.signal(task, signal.SIGTERM, fault="sigterm")
        crashes.end_of_peers(launch, cluster, list(cluster.drivers))
        return cluster.run()
