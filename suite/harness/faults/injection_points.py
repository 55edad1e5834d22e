"""Define the points of a run at which a fault can be injected: INJECTION_POINTS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from suite.harness.cluster.cluster import Cluster
from suite.harness.core.history import Event
from suite.harness.scenarios import crashes
from suite.harness.scenarios.base import FEW

Wait = Callable[[Cluster, str], object]


@dataclass(frozen=True)
class InjectionPoint:
    """One point of a run at which a fault can be injected.

    `wait`: block until the task has reached the point. `hold`: the event and the step after which a
    synchronous target pauses until its fault is injected. `by_program`: the point is too short for
    the harness, so suite/programs/faulty_trainer.py injects the fault. `asynchronous`: the point
    also applies to asynchronous workers. `event`: of a run without faults that has such a point.
    """

    description: str
    wait: Wait | None = None
    by_program: bool = False
    asynchronous: bool = False
    hold: Callable[[Mapping[str, Any]], tuple[str, int]] | None = None
    event: str = "step"


def _stepped(cluster: Cluster, task: str) -> Event:
    """Wait for the first step at which a fault may be injected.

    The task that drives the loop reports in place of a server. Where workers are asynchronous and
    recovery needs a save, wait for the first save.
    """
    trainer = cluster.plan.trainer
    first = crashes.kill_at(cluster.plan.flags) if trainer.synchronous else FEW
    if not trainer.synchronous and (task == cluster.drivers[0] or task.startswith("ps/")):
        crashes.wait_saved(cluster)
    reporter = task if task in cluster.drivers else cluster.drivers[0]
    return cluster.wait_for(trainer.progress, reporter, where=lambda e: e["global_step"] >= first)


def _mid_epoch(flags: Mapping[str, Any]) -> tuple[str, int]:
    return "step", crashes.kill_at(flags)


def _second_epoch(flags: Mapping[str, Any]) -> tuple[str, int]:
    """Return the first step of the second epoch: the work between epochs is done by then."""
    return "step", flags["steps-per-epoch"] + 1


def _evaluating(cluster: Cluster, task: str) -> Event:
    last = cluster.plan.flags["steps-per-epoch"]
    return cluster.wait_for("step", task, where=lambda e: e["global_step"] >= last)


def _restoring(cluster: Cluster, task: str) -> Event:
    """Wait until the task restores in its second attempt.

    All tasks are killed and restarted before that, within the second epoch.
    """
    _stepped(cluster, task)
    crashes.end_all(cluster)
    cluster.hold(task, *_second_epoch(cluster.plan.flags))
    cluster.start()
    return cluster.wait_for("restored", task, attempt=1)


INJECTION_POINTS: Mapping[str, InjectionPoint] = MappingProxyType(
    {
        "forming": InjectionPoint(
            "the target has started and has not joined the cluster",
            lambda cluster, task: cluster.wait_for("started", task),
            hold=lambda _: ("started", 0),
        ),
        "first step": InjectionPoint(
            "the target has joined the cluster and makes its first step",
            lambda cluster, task: cluster.wait_for("joined", task),
            asynchronous=True,
            hold=lambda _: ("step", 1),
        ),
        "mid-epoch": InjectionPoint(
            "after the second step of an epoch; if asynchronous, after the first save",
            _stepped,
            asynchronous=True,
            hold=_mid_epoch,
        ),
        "epoch's end": InjectionPoint(
            "after an epoch, before the first step of the next",
            lambda cluster, task: cluster.wait_for("epoch", task),
            hold=_second_epoch,
            event="epoch",
        ),
        "saving": InjectionPoint(
            "while a checkpoint is written; the program injects the fault itself",
            by_program=True,
            asynchronous=True,
            event="checkpoint_saved",
        ),
        "restoring": InjectionPoint(
            "in the second life, after the checkpoint is restored",
            _restoring,
            hold=_mid_epoch,
            event="checkpoint_saved",
        ),
        "evaluating": InjectionPoint(
            "after the last step of an epoch, while it evaluates", _evaluating, hold=_second_epoch
        ),
        "shutting down": InjectionPoint(
            "after all steps, before the exit",
            lambda cluster, task: cluster.wait_for("finished", task),
            hold=lambda _: ("finished", 0),
        ),
    }
)
