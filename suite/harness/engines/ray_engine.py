"""The Ray engine: clusters whose tasks run on the nodes of a Ray cluster.

A placement group spreads the tasks over the nodes, and the agent of each node starts its share.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suite.harness.cluster.addresses import RAY, Network
from suite.harness.cluster.harness_use import HarnessUse
from suite.harness.cluster.launcher import Engine, Needs, Place
from suite.harness.core.errors import HarnessError
from suite.harness.engines import ray_connection, simulated_cluster
from suite.harness.engines.nodes import Node, Nodes
from suite.harness.engines.placement import Placement
from suite.harness.engines.remote_init import RemoteInit
from suite.harness.engines.simulated_cluster import SimulatedCluster

STRICT = "strict-spread"


@dataclass
class RayEngine(Engine):
    """The local engine's counterpart on the nodes of a Ray cluster."""

    address: str = ""
    shared: str = ""  # a directory that every node mounts
    placement: str = "spread"  # or STRICT
    kill_node: str = ""  # the command that ends the node {ip}
    requests: str = ""  # of the nodes on this machine, see simulated_cluster.py
    nodes: Nodes | None = None
    shares_nodes: bool = False  # with the engine that `stop`s the agents

    def apart(self, name: str, **changes: Any) -> Engine:
        self._nodes()
        return super().apart(name, shares_nodes=True, **changes)

    def _nodes(self) -> Nodes:
        with self.lock:
            if self.stopped:
                raise HarnessError("the session is over: no new cluster starts")
            if self.nodes is None:
                ray_connection.connect(self.address, self.session)
                own = (self.python, self.shared, self.session, self.deadlines)
                self.nodes = Nodes(*own).prepare()
            return self.nodes

    def prepare(self) -> None:
        self._nodes()

    def warm(self, *flavors: str) -> None:
        for flavor in flavors:
            for node in self._nodes().live:
                self._start_zygote(node, flavor)

    def _start_zygote(self, node: Node, flavor: str) -> None:
        what = (self.python, self.environment(flavor), self.spawn, list(self.preload))
        node.ask(self.deadlines.exit_s, "warm", self.prefix + flavor, *what)

    def import_s(self, flavor: str) -> float:
        """Return the seconds of the slowest node."""
        within_s, name = self.deadlines.ready_s, self.prefix + flavor
        return max(node.ask(within_s, "import_s", name) for node in self._nodes().live)

    def harness_use(self) -> HarnessUse:
        """Return what this process and the agents have used so far."""
        within_s = self.deadlines.exit_s
        agents = [node.ask(within_s, "harness_use") for node in self._nodes().live]
        return sum(agents, super().harness_use())

    @property
    def why_no_node_ends(self) -> str:
        if "PYTEST_XDIST_WORKER" in os.environ:
            return "other pytest processes use the nodes; run without -n"
        if self.requests or self.kill_node:
            return ""
        return f"--kill-node is not given, and {self.network.reason}"

    @property
    def node_count(self) -> int:
        return len(self._nodes().live)

    @property
    def gpu_count(self) -> int:
        return sum(node.gpus for node in self._nodes().live)

    def has_gpus(self, workers: int, each: int = 1) -> bool:
        """Return True if each worker finds `each` GPUs on one node."""
        fits = [node.gpus // each for node in self._nodes().live]
        if self.placement == STRICT:
            fits = [min(count, 1) for count in fits]
        return sum(fits) >= workers

    def gpus_of_a_worker(self, needs: Needs) -> int:
        """Return how many GPUs each worker of a cluster gets: none, if not all can have them."""
        enough = self.has_gpus(len(needs.workers), needs.gpus)
        if needs.alone and self.placement != STRICT:
            # Any node may be its own, and the others are placed on the other nodes in turn.
            nodes = self._nodes().live
            share = math.ceil((len(needs.tasks) - 1) / max(1, len(nodes) - 1))
            enough = all(node.gpus // needs.gpus >= max(1, share) for node in nodes)
        return needs.gpus if enough else 0

    def place(self, name: str, needs: Needs) -> Place:
        self.network.check_namespaces(needs.on_hosts, needs.on_disk)
        self.check_ends_nodes(needs.alone)
        nodes, gpus = self._nodes(), self.gpus_of_a_worker(needs)
        placement = Placement(name, nodes, self.placement == STRICT).reserve(needs, gpus)
        ended: list[str] = []  # addresses of nodes

        def end(ip: str) -> str:
            said = self._end(ip)
            ended.append(ip)
            return said

        def connected(flavor: str) -> RemoteInit:
            return RemoteInit(
                placement,
                start_zygote=lambda node: self._start_zygote(node, flavor),
                end=lambda node: nodes.end(node, end),
                zygote=self.prefix + flavor,
                directory=self.directory,
                files=(f"events/{name}", f"logs/{name}"),
                deadlines=self.deadlines,
            ).open()

        def release() -> None:
            placement.release()
            for ip in ended if self.requests else ():
                self._request("start", ip)

        addresses = {task: placement.addresses[task] for task in needs.tasks}
        return Place(addresses, connected, release, dict(placement.gpus))

    def _end(self, ip: str) -> str:
        """End the node with that address; return what the command said, if it is the user's."""
        if self.requests:
            self._request("end", ip)
            return ""
        command = [part.replace("{ip}", ip) for part in shlex.split(self.kill_node)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.deadlines.ready_s,
                check=False,  # ssh fails when the node ends before its answer
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HarnessError(f"--kill-node: {error}") from error
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        return f"--kill-node {shlex.join(command)}: exit {done.returncode}, it said {said[-1]}"

    def _request(self, what: str, ip: str) -> None:
        simulated_cluster.request(self.requests, what, ip, self.deadlines.ready_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the engine's section of run.json."""
        nodes = self.nodes.all if self.nodes else []
        found = [node.to_dict() for node in nodes]
        return {"name": "ray", "version": ray_connection.ray().__version__, "nodes": found}

    def stop(self) -> None:
        with self.lock:
            if self.stopped:
                return
            self.stopped = True
        within_s = self.deadlines.exit_s
        if self.shares_nodes:
            self._of_each(lambda node: node.ask(2 * within_s, "stop", self.prefix))
            return
        self._of_each(lambda node: node.note_drift(within_s))
        for died in self._of_each(lambda node: node.ask(within_s, "deaths")):
            self.restarts += died
        self._of_each(lambda node: node.ask(2 * within_s, "stop", ""))
        # Nodes may share a machine, so this follows the end of all tasks.
        for found in self._of_each(lambda node: node.ask(within_s, "left_behind")):
            self.left += found
        self.left[:] = dict.fromkeys(self.left)
        if self.nodes:
            ray_connection.ray().shutdown()

    def _of_each(self, call: Callable[[Node], Any]) -> list[Any]:
        """Return the results of all nodes; note a node that does not answer."""
        results = []
        for node in self.nodes.live if self.nodes else []:
            try:
                results.append(call(node))
            except HarnessError as error:
                self.left.append(str(error))
        return results


def network(address: str, simulated: SimulatedCluster | None = None) -> Network:
    """Return the network of tasks on Ray, for run.json and pytest's header."""
    where = f"tasks run on the nodes of the Ray cluster at {address}"
    if simulated is None:
        return Network(RAY, where)
    if simulated.shared_network:
        shared = f"nodes share this machine's network: {simulated.shared_network}"
        return Network(RAY, f"{where}, whose {shared}")
    return Network(RAY, f"{where}, each in a network namespace of this machine")
