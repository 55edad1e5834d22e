"""The moments at which a task can be hurt: MOMENTS."""

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
    """`wait` until the task is there, or has been.

    `hold`: after which event, of which step, one of those in step stands still until it is hurt.
    `planted`: it goes by so fast that only the program itself can be hurt in it, see
    suite/programs/planted.py. `asynchronous`: it means something where workers are not in step too.
    """

    wait: Wait | None = None
    planted: bool = False
    asynchronous: bool = False
    hold: Callable[[Mapping[str, Any]], tuple[str, int]] | None = None


def _stepped(cluster: Cluster, task: str) -> Event:
    """Of servers the task that drives the loop tells.

    Not in step, and a loss from which a save must help: until there is one.
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
    """Its first step: what comes between two epochs is over."""
    return "step", flags["steps-per-epoch"] + 1


def _evaluating(cluster: Cluster, task: str) -> Event:
    last = cluster.plan.flags["steps-per-epoch"]
    return cluster.wait_for("step", task, where=lambda e: e["global_step"] >= last)


def _restoring(cluster: Cluster, task: str) -> Event:
    """In its second life, for which all were ended and started again within the second epoch."""
    _stepped(cluster, task)
    crashes.end_all(cluster)
    cluster.hold(task, *_second_epoch(cluster.plan.flags))
    cluster.start()
    return cluster.wait_for("restored", task, attempt=1)


INJECTION_POINTS: Mapping[str, InjectionPoint] = MappingProxyType(
    {
        "forming": InjectionPoint(  # which it has not joined yet
            lambda cluster, task: cluster.wait_for("started", task), hold=lambda _: ("started", 0)
        ),
        "first step": InjectionPoint(
            lambda cluster, task: cluster.wait_for("joined", task),
            asynchronous=True,
            hold=lambda _: ("step", 1),
        ),
        "mid-epoch": InjectionPoint(_stepped, asynchronous=True, hold=_mid_epoch),
        "epoch's end": InjectionPoint(
            lambda cluster, task: cluster.wait_for("epoch", task), hold=_second_epoch
        ),
        "saving": InjectionPoint(planted=True, asynchronous=True),
        "restoring": InjectionPoint(_restoring, hold=_mid_epoch),
        "evaluating": InjectionPoint(_evaluating, hold=_second_epoch),
        "shutting down": InjectionPoint(
            lambda cluster, task: cluster.wait_for("finished", task), hold=lambda _: ("finished", 0)
        ),
    }
)
