"""The Ray engine: clusters whose tasks run on the nodes of a Ray cluster.

A placement group spreads the tasks over the nodes, and the agent of each node starts its share
(node_agent.py). The driver, which is pytest's process, copies the files that tasks write into the
run directory as they grow, so the rest of the suite does not know where a task runs.

Ray's documentation: https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html
"""

from __future__ import annotations

import contextlib
import importlib
import json
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.harness.cluster.addresses import RAY, Network
from suite.harness.cluster.harness_use import HarnessUse
from suite.harness.cluster.launcher import Engine, Place
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import BadInput, HarnessError, Unsupported
from suite.harness.core.paths import ROOT, TASK_SIDE
from suite.harness.engines.node_agent import EVENTS, NodeAgent, Piece, boot_id, clock_offset

SIMULATED_NODES = 3
FEWEST_NODES = 2
ROUND_TRIPS = 50  # to estimate the offset of a node's clock
REACHED_S = 5.0
THREADS = 64  # of an agent: each cluster has one that waits for news
START = TASK_SIDE / "ray_nodes.py"
INSTALL = "pip install -e '.[ray]'"


def ray() -> Any:
    """Return the module; BadInput where Ray is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise BadInput(f"--engine ray: Ray is not installed here; {INSTALL}") from error


@contextlib.contextmanager
def own_signal_handlers() -> Iterator[None]:
    """Keep this process's signal handlers: Ray's replaces that of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in kept.items():
            signal.signal(signum, handler)


@dataclass(frozen=True)
class SimulatedCluster:
    """A Ray cluster whose nodes are on this machine, with a network each unless it says why not."""

    address: str
    shared_network: str  # why the nodes share the machine's network; "" if they do not
    end: Callable[[], None]


def start_nodes(deadlines: Deadlines) -> SimulatedCluster:
    """Start a Ray cluster of SIMULATED_NODES nodes and a head on this machine."""
    ray()
    process = subprocess.Popen(
        [sys.executable, str(START), str(SIMULATED_NODES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # only pytest gets Ctrl-C; it then ends the nodes in order
    )
    given, answers = process.stdin, process.stdout
    assert given is not None
    assert answers is not None

    def end() -> None:
        given.close()
        try:
            process.wait(deadlines.exit_s)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel ends its children, as Ray asked it to
            process.wait()
        answers.close()

    answered, _, _ = select.select([answers], [], [], deadlines.ready_s)
    line = answers.readline() if answered else ""
    answer = json.loads(line) if line else {"error": f"no answer in {deadlines.ready_s:.0f} s"}
    if "error" in answer:
        end()
        raise BadInput(f"--engine ray: cannot start nodes on this machine: {answer['error']}")
    return SimulatedCluster(answer["address"], answer["shared_network"], end)


def check_reachable(address: str) -> None:
    """Raise BadInput unless something answers there; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "//" in address or not host or not port.isdecimal():
        raise BadInput(
            f"--ray-address {address}: must be HOST:PORT of the head node, or auto on a node"
        )
    try:
        socket.create_connection((host, int(port)), REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"--ray-address {address}: cannot be reached: {error}") from error


def connect(address: str, session: str) -> None:
    """Make this process a driver of the Ray cluster; BadInput if that is impossible."""
    module = ray()
    if module.is_initialized():
        return
    check_reachable(address)
    try:
        with own_signal_handlers():
            module.init(
                address=address,
                namespace=f"tfdc-{session}",
                log_to_driver=False,
                configure_logging=False,
                # The agents import the suite from its checkout, which is on every node.
                runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
            )
    except Exception as error:  # Ray raises errors of many kinds
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise BadInput(
            f"--ray-address {address}: cannot connect with Ray {module.__version__}: {first[0]}"
        ) from error


@dataclass
class Node:
    """One node of the Ray cluster and its agent."""

    id: str
    ip: str
    agent: Any  # the actor's handle
    facts: dict[str, Any] = field(default_factory=dict)
    offset_s: float = 0.0  # by which its clock is ahead of the driver's
    error_s: float = 0.0
    drift_s: float = 0.0  # change of the offset until the end of the run

    @property
    def name(self) -> str:
        return f"node {self.ip} ({self.id[:8]})"

    def ask(self, within_s: float, method: str, *arguments: Any) -> Any:
        """Call the agent; raise its error, or HarnessError with the node's name."""
        call = getattr(self.agent, method).remote(*arguments)
        return self.answer(call, within_s)

    def answer(self, call: Any, within_s: float) -> Any:
        errors = ray().exceptions
        try:
            return ray().get(call, timeout=within_s)
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

    def clock(self, within_s: float) -> tuple[float, float]:
        """Return the clock's offset and its error; processes of one machine share the clock."""
        if self.is_here:
            return 0.0, 0.0
        return clock_offset(lambda: self.ask(within_s, "clock"), ROUND_TRIPS)

    def note_drift(self, within_s: float) -> None:
        """Note the change of the clock's offset since the start; event times keep the first."""
        self.drift_s = self.clock(within_s)[0] - self.offset_s

    def to_dict(self) -> dict[str, Any]:
        """Return the node's entry in run.json."""
        kept = ("host", "python", "cpus", "memory_gib", "kernel")
        facts = {name: self.facts[name] for name in kept}
        return {
            "id": self.id[:8],
            "address": self.ip,
            **facts,
            "clock_offset_s": self.offset_s,
            "clock_error_s": self.error_s,
            "clock_drift_s": self.drift_s,
        }


@dataclass
class Nodes:
    """The nodes that have processors for tasks, each with an agent of this driver."""

    nodes: list[Node]
    deadlines: Deadlines

    @classmethod
    def prepare(cls, python: str, shared: str, session: str, deadlines: Deadlines) -> Nodes:
        """Start an agent on each node and check all; BadInput says what a node lacks."""
        module = ray()
        affinity = importlib.import_module("ray.util.scheduling_strategies")
        usable = [n for n in module.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]
        if len(usable) < FEWEST_NODES:
            raise BadInput(
                f"--engine ray: the Ray cluster has {len(usable)} nodes with a processor, needs at "
                f"least {FEWEST_NODES}"
            )
        actor = module.remote(NodeAgent)
        nodes = []
        for found in usable:
            place = affinity.NodeAffinitySchedulingStrategy(found["NodeID"], soft=False)
            options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": THREADS}
            agent = actor.options(scheduling_strategy=place, **options).remote(deadlines, session)
            nodes.append(Node(found["NodeID"], found["NodeManagerAddress"], agent))
        prepared = cls(nodes, deadlines)
        try:
            prepared.check(python, shared, session)
        except HarnessError as error:
            raise BadInput(f"--engine ray: {error}") from error
        return prepared

    def check(self, python: str, shared: str, session: str) -> None:
        """Check interpreter, checkout and shared directory on each node, and read its clock."""
        probe = Path(shared) / f".tfdc-{session}"
        try:
            probe.write_text(session)
        except OSError as error:
            raise BadInput(f"--shared-dir {shared}: cannot be written: {error.strerror}") from error
        try:
            for node in self.nodes:
                node.ask(self.deadlines.ready_s, "end_with_node")
                node.facts = node.ask(self.deadlines.exit_s, "describe", python)
                if not node.facts["interpreter"]:
                    raise BadInput(
                        f"--engine ray: {node.name} has no {python}; --python names an interpreter "
                        "that every node has"
                    )
                if node.facts["root"] != str(ROOT):
                    raise BadInput(
                        f"--engine ray: {node.name} imports the suite from {node.facts['root']}, "
                        f"this process from {ROOT}; both must be the same"
                    )
                if not node.ask(self.deadlines.exit_s, "has", str(probe), session):
                    raise BadInput(
                        f"--shared-dir {shared}: {node.name} does not see what is written there; "
                        "give a directory that every node mounts"
                    )
                node.offset_s, node.error_s = node.clock(self.deadlines.exit_s)
        finally:
            probe.unlink(missing_ok=True)

    def for_tasks(self, tasks: Sequence[str]) -> tuple[dict[str, Node], Any]:
        """Return the node of each task, and the placement group that keeps processors for them."""
        groups = importlib.import_module("ray.util.placement_group")
        group = groups.placement_group([{"CPU": 1}] * len(tasks), strategy="SPREAD")
        if not group.wait(self.deadlines.exit_s):
            groups.remove_placement_group(group)
            raise HarnessError(
                f"the Ray cluster had no {len(tasks)} free processors for the tasks "
                f"{', '.join(tasks)} within {self.deadlines.exit_s:.0f} s"
            )
        by_id = {node.id: node for node in self.nodes}
        placed = groups.placement_group_table(group)["bundles_to_node_id"]
        missing = [i for i in placed.values() if i not in by_id]
        if missing:
            groups.remove_placement_group(group)
            raise HarnessError(f"node {missing[0][:8]} joined the Ray cluster after the start")
        return {task: by_id[placed[i]] for i, task in enumerate(tasks)}, group


@dataclass
class RemoteInit:
    """The connection to the init processes of one cluster, one on each of its nodes."""

    name: str  # of the cluster, unique among those of all drivers
    nodes: Mapping[str, Node]  # by task
    zygote: str
    directory: Path  # the run directory; paths below it are mapped to the agents' directories
    files: Sequence[str]  # directories of this cluster, below it
    deadlines: Deadlines
    polls: dict[str, Any] = field(default_factory=dict)  # outstanding calls, by node
    orphans: list[Sequence[Any]] = field(default_factory=list)  # of each node that has answered
    pid: int = 0  # 0: not a process of this machine

    def open(self) -> RemoteInit:
        try:
            for node in self.distinct:
                within_s = self.deadlines.ready_s
                node.ask(within_s, "open", self.name, self.zygote, self.files)
                self._poll(node)
        except BaseException:
            self.close(self.deadlines)
            raise
        return self

    @property
    def distinct(self) -> list[Node]:
        return list({node.id: node for node in self.nodes.values()}.values())

    def _poll(self, node: Node) -> None:
        self.polls[node.id] = node.agent.poll.remote(self.name)

    def send(self, **message: Any) -> None:
        if message["op"] == "orphans":
            self.orphans = []
            for node in self.distinct:
                node.ask(self.deadlines.exit_s, "send", self.name, message)
            return
        if "task" not in message:
            raise Unsupported(f"{message['op']} of their own need namespaces: not on Ray")
        node = self.nodes[message["task"]]
        for argument in message.get("args", ()):
            self._give(node, argument)
        node.ask(self.deadlines.exit_s, "send", self.name, self._there(node, message))

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived, after writing the files that came with them."""
        messages: list[dict[str, Any]] = []
        for node in self.distinct:
            call = self.polls[node.id]
            if not ray().wait([call], timeout=0)[0]:
                continue
            found, pieces = node.answer(call, self.deadlines.exit_s)
            self._poll(node)
            self._write(node, pieces)
            for message in found:
                if message["op"] == "orphans":
                    messages += self._answered(message["answer"])
                    continue
                if "time_s" in message:
                    message["time_s"] -= node.offset_s
                if "pid" in message and not node.is_here:
                    message["pid"] = 0  # the number of another process here
                messages.append(message)
        return messages

    def _answered(self, orphans: Sequence[Any]) -> list[dict[str, Any]]:
        """Add a node's orphans; return the message with all once every node has answered."""
        self.orphans.append(orphans)
        if len(self.orphans) < len(self.distinct):
            return []
        return [{"op": "orphans", "answer": [one for own in self.orphans for one in own]}]

    def hold(self, task: str, path: Path) -> Callable[[], None]:
        """Lock a file on the task's node; return the function that releases it."""
        node = self.nodes[task]
        there = self._there(node, str(path))
        node.ask(self.deadlines.exit_s, "hold", self.name, there)

        def let_go() -> None:
            with contextlib.suppress(HarnessError):  # the node's end has released the lock
                node.ask(self.deadlines.exit_s, "let_go", self.name, there)

        return let_go

    def close(self, deadlines: Deadlines) -> None:
        """End the tasks on all nodes, and write the rest of their files."""
        errors: list[HarnessError] = []
        for node in self.distinct:
            try:
                self._write(node, node.ask(2 * deadlines.exit_s, "close", self.name))
            except HarnessError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _give(self, node: Node, argument: str) -> None:
        """Copy to the node a file of another cluster of this run, such as weights to begin with."""
        path = Path(argument)
        if not path.is_relative_to(self.directory) or not path.is_file():
            return
        name = str(path.relative_to(self.directory))
        if not name.startswith(tuple(f"{own}/" for own in self.files)):
            node.ask(self.deadlines.exit_s, "put", name, path.read_bytes())

    def _there(self, node: Node, value: Any) -> Any:
        """Return the value with paths of the run directory as they are on the node."""
        if isinstance(value, str):
            return value.replace(str(self.directory), node.facts["directory"])
        if isinstance(value, Mapping):
            return {key: self._there(node, part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._there(node, part) for part in value]
        return value

    def _write(self, node: Node, pieces: Sequence[Piece]) -> None:
        """Write pieces of files into the run directory, with its paths and the driver's clock."""
        for name, offset, content in pieces:
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == EVENTS:
                own = content.replace(
                    node.facts["directory"].encode(), str(self.directory).encode()
                )
                with path.open("ab") as file:
                    file.write(self._in_our_time(node, own))
                continue
            with path.open("r+b" if path.exists() else "wb") as file:
                file.seek(offset)
                file.truncate()
                file.write(content)

    def _in_our_time(self, node: Node, lines: bytes) -> bytes:
        """Return event lines with times of the driver's clock."""
        if not node.offset_s:
            return lines
        return b"\n".join(_shifted(line, node.offset_s) for line in lines.split(b"\n"))


def _shifted(line: bytes, offset_s: float) -> bytes:
    """Return an event line with its time moved; a malformed line stays as it is."""
    try:
        event = json.loads(line)
        event["time_s"] -= offset_s
    except (ValueError, TypeError, KeyError):
        return line
    return json.dumps(event).encode()


@dataclass
class RayEngine(Engine):
    """The local engine's counterpart on the nodes of a Ray cluster."""

    address: str = ""
    shared: str = ""  # a directory that every node mounts
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
                connect(self.address, self.session)
                self.nodes = Nodes.prepare(self.python, self.shared, self.session, self.deadlines)
            return self.nodes

    def prepare(self) -> None:
        self._nodes()

    def warm(self, *flavors: str) -> None:
        for flavor in flavors:
            for node in self._nodes().nodes:
                self._start_zygote(node, flavor)

    def _start_zygote(self, node: Node, flavor: str) -> None:
        what = (self.python, self.environment(flavor), self.spawn, list(self.preload))
        node.ask(self.deadlines.exit_s, "warm", self.prefix + flavor, *what)

    def import_s(self, flavor: str) -> float:
        """Return the seconds of the slowest node."""
        within_s, name = self.deadlines.ready_s, self.prefix + flavor
        return max(node.ask(within_s, "import_s", name) for node in self._nodes().nodes)

    def harness_use(self) -> HarnessUse:
        """Return what this process and the agents have used so far."""
        within_s = self.deadlines.exit_s
        agents = [node.ask(within_s, "harness_use") for node in self._nodes().nodes]
        return sum(agents, super().harness_use())

    def place(self, name: str, tasks: Sequence[str], on_hosts: bool, on_disk: bool) -> Place:
        self.network.check_namespaces(on_hosts, on_disk)
        nodes, group = self._nodes().for_tasks(tasks)
        distinct = {node.id: node for node in nodes.values()}

        def release() -> None:
            for node in distinct.values():
                with contextlib.suppress(HarnessError):
                    node.ask(self.deadlines.exit_s, "release", name)
            with contextlib.suppress(Exception):  # Ray may be gone
                importlib.import_module("ray.util.placement_group").remove_placement_group(group)

        addresses: dict[str, str] = {}
        try:
            for node in distinct.values():
                own = [task for task in tasks if nodes[task] is node]
                ports = node.ask(self.deadlines.exit_s, "lease", name, len(own))
                addresses.update({t: f"{node.ip}:{p}" for t, p in zip(own, ports, strict=True)})
        except BaseException:
            release()
            raise

        def connected(flavor: str) -> RemoteInit:
            for node in distinct.values():
                self._start_zygote(node, flavor)
            files = (f"events/{name}", f"logs/{name}")
            zygote = self.prefix + flavor
            return RemoteInit(name, nodes, zygote, self.directory, files, self.deadlines).open()

        return Place({task: addresses[task] for task in tasks}, connected, release)

    def to_dict(self) -> dict[str, Any]:
        """Return the engine's section of run.json."""
        nodes = self.nodes.nodes if self.nodes else []
        found = [node.to_dict() for node in nodes]
        return {"name": "ray", "version": ray().__version__, "nodes": found}

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
        self._of_each(lambda node: node.ask(2 * within_s, "stop", ""))
        # Nodes may share a machine, so this follows the end of all tasks.
        for found in self._of_each(lambda node: node.ask(within_s, "left_behind")):
            self.left += found
        self.left[:] = dict.fromkeys(self.left)
        if self.nodes:
            ray().shutdown()

    def _of_each(self, call: Callable[[Node], Any]) -> list[Any]:
        """Return the results of all nodes; note a node that does not answer."""
        results = []
        for node in self.nodes.nodes if self.nodes else []:
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
