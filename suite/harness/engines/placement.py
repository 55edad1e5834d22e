"""Reserve processors, GPUs and ports on the nodes of a Ray cluster for the tasks of one cluster.

Ray's documentation: https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html and
https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suite.harness.cluster.launcher import Needs
from suite.harness.core.deadlines import wait_until
from suite.harness.core.errors import HarnessError
from suite.harness.engines import ray_connection
from suite.harness.engines.nodes import Node, Nodes
from suite.harness.environment.gpus import NO_GPU

SHARE = 0.001  # of the resource that Ray gives each node under its address: pins a task there


def _groups() -> Any:
    return importlib.import_module("ray.util.placement_group")


def _bundle(group: Any, index: int) -> Any:
    """Return the scheduling strategy that puts an actor into this bundle of a group."""
    module = importlib.import_module("ray.util.scheduling_strategies")
    return module.PlacementGroupSchedulingStrategy(group, index)


class GpuHolder:
    """An actor that holds the GPUs of a task until its placement group is removed."""

    def visible(self) -> str:
        """Return CUDA_VISIBLE_DEVICES, which Ray has set to these GPUs."""
        return os.environ.get("CUDA_VISIBLE_DEVICES", NO_GPU)


@dataclass
class Placement:
    """The nodes and addresses of the tasks of one cluster; `release` gives them back.

    Ray reserves a processor on another node for a task whose node was lost.
    """

    name: str  # of the cluster, unique among those of all drivers
    nodes: Nodes
    strict: bool = False  # no node runs two tasks
    by_task: dict[str, Node] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)  # by task
    gpus: dict[str, str] = field(default_factory=dict)  # by worker: CUDA_VISIBLE_DEVICES
    holders: dict[str, Any] = field(default_factory=dict)  # actors, by worker
    reserved: list[tuple[Sequence[str], Any]] = field(default_factory=list)  # tasks and their group

    def reserve(self, needs: Needs, gpus: int) -> Placement:
        """Spread the tasks over the nodes; each worker gets so many GPUs."""
        tasks, alone = needs.tasks, needs.alone
        self.gpus = dict.fromkeys(needs.workers, NO_GPU)
        try:
            if self.strict and len(tasks) > len(self.nodes.live):
                raise HarnessError(
                    f"--placement strict-spread: {len(tasks)} tasks need as many nodes, and "
                    f"the Ray cluster has {len(self.nodes.live)}"
                )
            if alone and not self.strict:
                self._reserve([alone], gpus)
                own = self.by_task[alone]
                others = [node for node in self.nodes.live if node is not own]
                rest = [task for task in tasks if task != alone]
                if rest and not others:
                    raise HarnessError(f"{own.name} is the only node that is left")
                self._reserve(rest, gpus, others)
            else:
                self._reserve(tasks, gpus)
            self._lease(tasks)
        except BaseException:
            self.release()
            raise
        return self

    def _reserve(self, tasks: Sequence[str], gpus: int, nodes: Sequence[Node] = ()) -> None:
        """Reserve a processor for each task, and GPUs for each worker.

        They are on these nodes in turn, else where Ray chooses.
        """
        if not tasks:
            return
        bundles = [{"CPU": 1.0} for _ in tasks]
        for bundle, task in zip(bundles, tasks, strict=True):
            if gpus and task in self.gpus:
                bundle["GPU"] = float(gpus)
        for bundle, node in zip(bundles, itertools.cycle(nodes), strict=False):
            bundle[f"node:{node.ip}"] = SHARE
        strategy = "STRICT_SPREAD" if self.strict else "SPREAD"
        group = _groups().placement_group(bundles, strategy=strategy)
        self.reserved.append((tasks, group))
        within_s = self.nodes.deadlines.exit_s
        if not group.wait(within_s):
            raise HarnessError(
                f"the Ray cluster had no {len(tasks)} free processors"
                f"{' with GPUs' if gpus else ''} for the tasks {', '.join(tasks)} within "
                f"{within_s:.0f} s"
            )
        self.by_task |= self._nodes_of(tasks, group)
        if missing := [task for task in tasks if task not in self.by_task]:
            raise HarnessError(f"the node of {missing[0]} left the Ray cluster")
        if gpus:
            self._hold(tasks, group, gpus)

    def _hold(self, tasks: Sequence[str], group: Any, gpus: int) -> None:
        """Let an actor for each worker hold the GPUs that Ray has reserved, and learn which."""
        actor = ray_connection.ray().remote(GpuHolder)
        asked = {}
        for index, task in enumerate(tasks):
            if task in self.gpus:
                own = {"num_cpus": 0, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": -1}
                where = _bundle(group, index)
                self.holders[task] = actor.options(scheduling_strategy=where, **own).remote()
                asked[task] = self.holders[task].visible.remote()
        self._learn(asked)

    def _learn(self, asked: Mapping[str, Any]) -> None:
        within_s = self.nodes.deadlines.ready_s
        self.gpus |= {task: self.by_task[task].answer(asked[task], within_s) for task in asked}

    def _nodes_of(self, tasks: Sequence[str], group: Any) -> dict[str, Node]:
        """Return the node of each task of a group; add nodes that have joined since the start."""
        placed = _groups().placement_group_table(group)["bundles_to_node_id"]
        if not set(placed.values()) <= {node.id for node in self.nodes.live}:
            self.nodes.add_new()
        by_id = {node.id: node for node in self.nodes.live}
        return {task: by_id[placed[i]] for i, task in enumerate(tasks) if placed[i] in by_id}

    def _lease(self, tasks: Sequence[str]) -> None:
        """Lease a port for each task on its node."""
        for node in {self.by_task[task].id: self.by_task[task] for task in tasks}.values():
            own = [task for task in tasks if self.by_task[task] is node]
            ports = node.ask(self.nodes.deadlines.exit_s, "lease", self.name, len(own))
            self.addresses.update({t: f"{node.ip}:{p}" for t, p in zip(own, ports, strict=True)})

    def move(self) -> tuple[dict[str, str], dict[str, str]]:
        """Place the tasks whose node was lost elsewhere; return their new addresses and GPUs."""
        lost = [task for task, node in self.by_task.items() if node.ended]
        found: dict[str, Node] = {}

        def placed() -> bool:
            for tasks, group in self.reserved:
                found.update(self._nodes_of(tasks, group))
            return set(lost) <= set(found)

        if lost:
            within_s = self.nodes.deadlines.exit_s
            try:
                wait_until(f"another processor for {', '.join(lost)}", placed, within_s)
            except TimeoutError as error:
                raise HarnessError(str(error)) from error
            self.by_task |= {task: found[task] for task in lost}
            self._lease(lost)
            # Ray has started these actors again, where it has reserved other GPUs.
            moved = {task: self.holders[task] for task in lost if task in self.holders}
            self._learn({task: holder.visible.remote() for task, holder in moved.items()})
        gpus = {task: self.gpus[task] for task in lost if task in self.gpus}
        return {task: self.addresses[task] for task in lost}, gpus

    @property
    def live(self) -> list[Node]:
        """Return the distinct nodes of the tasks that no fault has ended."""
        return list({node.id: node for node in self.by_task.values() if not node.ended}.values())

    def release(self) -> None:
        """Give ports and processors back."""
        for node in self.live:
            with contextlib.suppress(HarnessError):
                node.ask(self.nodes.deadlines.exit_s, "release", self.name)
        for _, group in self.reserved:
            with contextlib.suppress(Exception):  # Ray may be gone
                _groups().remove_placement_group(group)
