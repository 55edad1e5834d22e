"""The connection to the tasks of one cluster on the nodes of a Ray cluster.

It copies the files that tasks write into the run directory as they grow, so the rest of the suite
does not know where a task runs.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.harness.cluster.task_use import TaskUse
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.engines import ray_connection
from suite.harness.engines.node_agent import EVENTS, Clock, Piece
from suite.harness.engines.nodes import Node
from suite.harness.engines.placement import Placement


@dataclass
class RemoteInit:
    """The connection to the init processes of one cluster, one on each of its nodes."""

    placement: Placement
    start_zygote: Callable[[Node], None]
    end: Callable[[Node], float]  # ends a node and returns when
    zygote: str
    directory: Path  # the run directory; paths below it are mapped to the agents' directories
    files: Sequence[str]  # directories of this cluster, below it
    deadlines: Deadlines
    polls: dict[str, Any] = field(default_factory=dict)  # outstanding calls, by node
    orphans: list[Sequence[Any]] = field(default_factory=list)  # of each node that has answered
    clocks: dict[str, Clock] = field(default_factory=dict)  # since the start here, by node
    running: dict[str, int] = field(default_factory=dict)  # attempt by task
    received: list[dict[str, Any]] = field(default_factory=list)  # while a node was ended
    pid: int = 0  # 0: not a process of this machine

    def open(self) -> RemoteInit:
        try:
            for node in self.placement.live:
                self._open(node)
        except BaseException:
            self.close(self.deadlines)
            raise
        return self

    @property
    def name(self) -> str:
        return self.placement.name

    @property
    def clock_error_s(self) -> float:
        """Return by how much the times of two tasks may be wrong, now, in their difference."""
        errors = sorted(clock.error_at(time.monotonic()) for clock in self.clocks.values())
        return sum(errors[-2:])

    def _open(self, node: Node) -> None:
        self.start_zygote(node)
        node.ask(self.deadlines.ready_s, "open", self.name, self.zygote, self.files)
        self.clocks[node.id] = node.read_clock(self.deadlines.exit_s)
        self._poll(node)

    def _poll(self, node: Node) -> None:
        self.polls[node.id] = node.agent.poll.remote(self.name)

    def send(self, **message: Any) -> None:
        if message["op"] == "orphans":
            self.orphans = []
            for node in self.placement.live:
                node.ask(self.deadlines.exit_s, "send", self.name, message)
            return
        if "task" not in message:
            raise Unsupported(f"{message['op']} of their own need namespaces: not on Ray")
        node = self.placement.by_task[message["task"]]
        if node.ended:
            raise HarnessError(f"{node.name} of {message['task']} was ended")
        if message["op"] == "start":
            self.running[message["task"]] = message["attempt"]
        for argument in message.get("args", ()):
            self._give(node, argument)
        node.ask(self.deadlines.exit_s, "send", self.name, self._there(node, message))

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived, after writing the files that came with them."""
        messages, self.received = self.received, []
        for node in self.placement.live:
            call = self.polls[node.id]
            if not ray_connection.ray().wait([call], timeout=0)[0]:
                continue
            found, pieces = node.answer(call, self.deadlines.exit_s)
            self._poll(node)
            self._write(node, pieces)
            for message in found:
                if message["op"] == "orphans":
                    messages += self._answered(message["answer"])
                    continue
                if message["op"] == "exited":
                    self.running.pop(message["task"], None)
                if "time_s" in message:
                    message["time_s"] -= self.clocks[node.id].offset_s
                if "pid" in message and not node.is_here:
                    message["pid"] = 0  # the number of another process here
                messages.append(message)
        return messages

    def _answered(self, orphans: Sequence[Any]) -> list[dict[str, Any]]:
        """Add a node's orphans; return the message with all once every node has answered."""
        self.orphans.append(orphans)
        if len(self.orphans) < len(self.placement.live):
            return []
        return [{"op": "orphans", "answer": [one for own in self.orphans for one in own]}]

    def use(self, task: str, proportional: bool) -> TaskUse | None:
        """Return what the process of a task has used; None once it has exited."""
        node = self.placement.by_task[task]
        if node.ended:
            return None
        return node.ask(self.deadlines.exit_s, "use", self.name, task, proportional)

    def end_node(self, task: str) -> None:
        """End the node of a task; all tasks that run there end with it."""
        node = self.placement.by_task[task]
        self.received = self.receive()  # what the node has said is not lost
        ended_s = self.end(node)
        for lost in [t for t in self.running if self.placement.by_task[t] is node]:
            exited = {"task": lost, "attempt": self.running.pop(lost), "time_s": ended_s}
            how = {"code": None, "signal": signal.SIGKILL.value, "node": node.name}
            self.received.append({"op": "exited", **exited, **how})

    def move(self) -> tuple[dict[str, str], dict[str, str]]:
        """Place the tasks whose node was ended elsewhere; return their addresses and GPUs."""
        moved = self.placement.move()
        for node in self.placement.live:
            if node.id not in self.polls:
                self._open(node)
        return moved

    def hold(self, task: str, path: Path) -> Callable[[], None]:
        """Lock a file on the task's node; return the function that releases it."""
        node = self.placement.by_task[task]
        there = self._there(node, str(path))
        node.ask(self.deadlines.exit_s, "hold", self.name, there)

        def let_go() -> None:
            with contextlib.suppress(HarnessError):  # the node's end has released the lock
                node.ask(self.deadlines.exit_s, "let_go", self.name, there)

        return let_go

    def close(self, deadlines: Deadlines) -> None:
        """End the tasks on all nodes, and write the rest of their files."""
        errors: list[HarnessError] = []
        for node in self.placement.live:
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
        offset_s = self.clocks[node.id].offset_s
        if not offset_s:
            return lines
        return b"\n".join(_shifted(line, offset_s) for line in lines.split(b"\n"))


def _shifted(line: bytes, offset_s: float) -> bytes:
    """Return an event line with its time moved; a malformed line stays as it is."""
    try:
        event = json.loads(line)
        event["time_s"] -= offset_s
    except (ValueError, TypeError, KeyError):
        return line
    return json.dumps(event).encode()
