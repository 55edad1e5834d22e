"""The nodes of a Ray cluster, each with an agent of this driver (node_agent.py)."""

from __future__ import annotations

import importlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import BadInput, HarnessError
from suite.harness.core.paths import ROOT
from suite.harness.engines import ray_connection
from suite.harness.engines.node_agent import Clock, NodeAgent, boot_id, compare_clocks

FEWEST_NODES = 2
ROUND_TRIPS = 50  # to estimate the offset of a node's clock
THREADS = 64  # of an agent: each cluster has one that waits for news


@dataclass
class Node:
    """One node of the Ray cluster and its agent."""

    id: str
    ip: str
    agent: Any  # the actor's handle
    facts: dict[str, Any] = field(default_factory=dict)
    gpus: int = 0  # that Ray has for tasks
    clock: Clock = field(default_factory=Clock)  # at the start of the run
    drift_s: float = 0.0  # change of the clock's offset until the end of the run
    ended: bool = False  # by a fault

    @property
    def name(self) -> str:
        return f"node {self.ip} ({self.id[:8]})"

    def ask(self, within_s: float, method: str, *arguments: Any) -> Any:
        """Call the agent; raise its error, or HarnessError with the node's name."""
        call = getattr(self.agent, method).remote(*arguments)
        return self.answer(call, within_s)

    def answer(self, call: Any, within_s: float) -> Any:
        errors = ray_connection.ray().exceptions
        try:
            return ray_connection.ray().get(call, timeout=within_s)
        except errors.RayTaskError as error:
            raise HarnessError(f"{self.name}: {error.cause}") from error
        except errors.GetTimeoutError as error:
            raise HarnessError(f"{self.name} did not answer within {within_s:.0f} s") from error
        except errors.OutOfMemoryError as error:
            raise HarnessError(
                f"{self.name}: Ray's memory monitor killed the agent, because the node's memory "
                "was almost full; train fewer workers, or set RAY_memory_monitor_refresh_ms=0"
            ) from error
        except errors.RayError as error:
            raise HarnessError(
                f"{self.name} left the Ray cluster; the end of its tasks' events is lost"
            ) from error

    @property
    def is_here(self) -> bool:
        """Return True if the node runs on this machine."""
        return bool(self.facts["boot_id"]) and self.facts["boot_id"] == boot_id()

    def read_clock(self, within_s: float) -> Clock:
        """Compare the clock with the driver's; processes of one machine share it."""
        if self.is_here:
            return Clock()
        return compare_clocks(lambda: self.ask(within_s, "clock"), ROUND_TRIPS)

    def note_drift(self, within_s: float) -> None:
        """Note the change of the clock's offset since the start of the run."""
        self.drift_s = self.read_clock(within_s).offset_s - self.clock.offset_s

    def to_dict(self) -> dict[str, Any]:
        """Return the node's entry in run.json."""
        kept = ("host", "python", "cpus", "memory_gib", "kernel")
        facts = {name: self.facts[name] for name in kept}
        return {
            "id": self.id[:8],
            "address": self.ip,
            **facts,
            "gpus": self.gpus,
            "clock_offset_s": self.clock.offset_s,
            "clock_error_s": self.clock.error_s,
            "clock_drift_s": self.drift_s,
            "ended_by_fault": self.ended,
        }


def usable() -> list[Mapping[str, Any]]:
    """Return Ray's entries of the nodes that are alive and have a processor for a task."""
    found = ray_connection.ray().nodes()
    return [n for n in found if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]


@dataclass
class Nodes:
    """The nodes that have processors for tasks, each with an agent of this driver."""

    python: str  # the interpreter of tasks
    shared: str  # a directory that every node mounts
    session: str
    deadlines: Deadlines
    all: list[Node] = field(default_factory=list)  # in order of their arrival
    lock: Lock = field(default_factory=Lock)

    @property
    def live(self) -> list[Node]:
        """Return the nodes that no fault has ended."""
        return [node for node in self.all if not node.ended]

    def prepare(self) -> Nodes:
        """Start an agent on each node and check all; BadInput says what a node lacks."""
        found = len(usable())
        if found < FEWEST_NODES:
            raise BadInput(
                f"--engine ray: the Ray cluster has {found} nodes with a processor, needs at "
                f"least {FEWEST_NODES}"
            )
        try:
            self.add_new()
        except HarnessError as error:
            raise BadInput(f"--engine ray: {error}") from error
        return self

    def add_new(self) -> None:
        """Start an agent on each node that has none, and check these nodes."""
        with self.lock:  # several threads place tasks
            affinity = importlib.import_module("ray.util.scheduling_strategies")
            actor = ray_connection.ray().remote(NodeAgent)
            new, known = [], {node.id for node in self.all}
            for found in usable():
                if found["NodeID"] in known:
                    continue
                place = affinity.NodeAffinitySchedulingStrategy(found["NodeID"], soft=False)
                options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": THREADS}
                start = actor.options(scheduling_strategy=place, **options).remote
                agent = start(self.deadlines, self.session)
                gpus = int(found["Resources"].get("GPU", 0))
                new.append(Node(found["NodeID"], found["NodeManagerAddress"], agent, gpus=gpus))
            self.check(new)
            self.all += new

    def check(self, nodes: Sequence[Node]) -> None:
        """Check interpreter, checkout and shared directory on each node, and read its clock."""
        probe = Path(self.shared) / f".tfdc-{self.session}"
        try:
            probe.write_text(self.session)
        except OSError as error:
            raise BadInput(
                f"--shared-dir {self.shared}: cannot be written: {error.strerror}"
            ) from error
        try:
            for node in nodes:
                node.ask(self.deadlines.ready_s, "end_with_node")
                node.facts = node.ask(self.deadlines.exit_s, "describe", self.python)
                if not node.facts["interpreter"]:
                    raise BadInput(
                        f"--engine ray: {node.name} has no {self.python}; --python names an "
                        "interpreter that every node has"
                    )
                if node.facts["root"] != str(ROOT):
                    raise BadInput(
                        f"--engine ray: {node.name} imports the suite from {node.facts['root']}, "
                        f"this process from {ROOT}; both must be the same"
                    )
                if not node.ask(self.deadlines.exit_s, "has", str(probe), self.session):
                    raise BadInput(
                        f"--shared-dir {self.shared}: {node.name} does not see what is written "
                        "there; give a directory that every node mounts"
                    )
                node.clock = node.read_clock(self.deadlines.exit_s)
        finally:
            probe.unlink(missing_ok=True)

    def end(self, node: Node, command: Callable[[str], str]) -> float:
        """End a node, and return when; wait until Ray reports it as dead.

        `command` gets the node's address. It returns what it says, for the error where the node
        goes on.
        """
        directories = node.ask(self.deadlines.exit_s, "own_directories")
        said = command(node.ip)
        ended_s = time.monotonic()
        try:
            wait_until(
                f"the end of {node.name}",
                lambda: node.id not in {found["NodeID"] for found in usable()},
                self.deadlines.ready_s,
            )
        except TimeoutError as error:
            raise HarnessError(f"{error}; {said}") from error
        node.ended = True
        if node.is_here:  # what a real node would have lost with its disk, or keeps there
            for directory in directories:
                shutil.rmtree(directory, ignore_errors=True)
        return ended_s
