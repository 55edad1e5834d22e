"""The pytest side of the zygotes: one per (interpreter, environment), started early.

A zygote imports TensorFlow while pytest still collects. A ClusterInit is the connection to the init
process of one cluster. Both processes end with pytest; see zygote.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from reports.core import text
from suite.harness.cluster.task_use import TaskUse
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.paths import ROOT, TASK_SIDE, short_directory

# Every process of a session has it, which distinguishes a leaked process from an unrelated one.
SESSION_VARIABLE = "TFDC_SESSION"
ENDING_S = 1.0  # between the end of a connection and that of its process
LOG_TAIL_BYTES = 4096


class ZygoteDied(HarnessError):
    """A zygote died after its import, or was killed during it; its clusters died with it."""


def end_of(process: subprocess.Popen[Any]) -> str:
    """Return "was killed by signal 9" or "ended with exit code 1"; "" while the process lives."""
    try:
        code = process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        return ""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


@dataclass
class Zygote:
    """A process that has imported the tasks' modules and forks an init process per connection."""

    python: str
    env: Mapping[str, str]
    spawn: str
    preload: Sequence[str]
    directory: Path
    socket_path: Path
    process: subprocess.Popen[bytes]
    log: Path | None = None
    log_from: int = 0  # offset of this zygote's output in the log
    replaces_dead: bool = False  # started in place of one that died
    worked: bool = False  # outlived a cluster
    ready: dict[str, Any] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    failure: str = ""  # why it did not import
    importing: Lock = field(default_factory=Lock)  # held by the thread that reads its output

    @classmethod
    def start(
        cls,
        python: str,
        env: Mapping[str, str],
        *,
        spawn: str = "fork",
        preload: Sequence[str] = (),
        log: Path | None = None,
        replaces_dead: bool = False,
    ) -> Zygote:
        """Start the zygote and return at once; `connect` waits until the import is done."""
        directory = short_directory()
        socket_path = directory / "zygote.sock"
        command = [python, str(TASK_SIDE / "zygote.py")]
        command += ["--socket", str(socket_path), "--root", str(ROOT), "--spawn", spawn]
        if spawn == "fork":
            command += [part for module in preload for part in ("--preload", module)]
        stderr = open(log or os.devnull, "ab")  # noqa: SIM115 - closed below, after the fork
        log_from = stderr.seek(0, os.SEEK_END)
        try:
            process = subprocess.Popen(
                command,
                # The tasks use it, too: a killed task leaves its temporary files behind
                # (AutoGraph's sources, a thousand in a run of the suite).
                env={**env, "TMPDIR": str(directory)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # only pytest gets Ctrl-C; it then ends the tasks in order
            )
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise HarnessError(f"cannot start {python}: {error}") from error
        finally:
            stderr.close()
        return cls(
            python, env, spawn, preload, directory, socket_path, process, log, log_from,
            replaces_dead,
        )  # fmt: skip

    def wait_ready(self, deadlines: Deadlines) -> dict[str, Any]:
        """Wait for the import and return the zygote's report: pid, import_s, versions."""
        with self.importing:
            if not self.ready and not self.failure:
                self.ready = self._first_words(deadlines)
        if self.has_died():
            raise ZygoteDied(self.failure or self.end())
        if self.failure:
            raise HarnessError(self.failure)
        return self.ready

    def _first_words(self, deadlines: Deadlines) -> dict[str, Any]:
        """Return the report that follows the import; {} if the zygote ended, see `failure`."""
        wanted = f"{self.python} did not import {', '.join(self.preload) or 'nothing'}"
        if self.process.stdout is None or self.process.stdout.closed:
            raise HarnessError(f"{wanted}: it was stopped")
        readable, _, _ = select.select([self.process.stdout], [], [], deadlines.ready_s)
        if not readable:
            raise HarnessError(f"{wanted} within {deadlines.ready_s:.0f} s; see {self.log}")
        line = self.process.stdout.readline()
        if not line:
            within_s = time.monotonic() - self.began_s
            self.failure = f"{wanted}; within {within_s:.0f} s {self.end()}"
        return json.loads(line) if line else {}

    def has_died(self) -> bool:
        """Return True if the process ended by itself for a reason other than an import error."""
        code = self.process.poll()
        return code is not None and (bool(self.ready) or code < 0)

    def end(self) -> str:
        """Return how the zygote ended, with its last log line; "" while it lives."""
        how = end_of(self.process)
        return how and f"the zygote {how}{self._last_words()}; see {self.log}"

    def _last_words(self) -> str:
        """Return the last line of the log, if any; "" for a zygote that a signal killed."""
        if self.log is None or self.process.returncode < 0:
            return ""
        end = text.end_of(self.log, LOG_TAIL_BYTES, self.log_from)
        said = [line.strip() for line in end.split("\n") if line.strip()]
        return f" ({said[-1]})" if said else ""

    def connect(self, deadlines: Deadlines, *, isolate: bool) -> ClusterInit:
        """Return the init process of a new cluster, in its own namespaces if `isolate`."""
        self.wait_ready(deadlines)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.socket_path))
        except OSError as error:
            connection.close()
            if end := self.end():
                raise ZygoteDied(end) from error
            raise HarnessError(f"zygote {self.process.pid} does not answer: {error}") from error
        cluster_init = ClusterInit(connection, self)
        try:
            cluster_init.send(isolate=isolate)
            first = wait_until(
                "the init process of a cluster", cluster_init.receive, deadlines.exit_s
            )[0]
            if first["op"] != "ready":
                raise HarnessError(first["message"])
        except BaseException:
            connection.close()
            raise
        cluster_init.pid = first["pid"]
        return cluster_init

    def stop(self, deadlines: Deadlines) -> None:
        """End the zygote and all its forks."""
        if not self.ready:
            self.process.kill()  # still importing: it does not read stdin yet and has no forks
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(deadlines.exit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with self.importing:  # another thread may read from it until it has ended
            if self.process.stdout:
                self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def living(
    zygotes: dict[str, Zygote],
    name: str,
    start: Callable[..., Zygote],
    restarts: list[str],
    deadlines: Deadlines,
) -> Zygote:
    """Return the zygote of this name; `start` it if needed. Call this with a lock held.

    Restart a zygote that died, and add to `restarts` how. Raise HarnessError if a restarted zygote
    dies before one of its clusters has ended, since each further restart would fail the same way.
    """
    dead = zygotes.get(name)
    if dead and not dead.has_died():
        return dead
    if dead:
        end = f"{name}: {dead.end()}"
        if dead.replaces_dead and not dead.worked:
            raise HarnessError(f"{end}; the second in a row, so no other is started")
        restarts.append(end)
        dead.stop(deadlines)
    zygotes[name] = start(replaces_dead=dead is not None)
    return zygotes[name]


def connect(zygote: Callable[[], Zygote], deadlines: Deadlines, *, isolate: bool) -> ClusterInit:
    """Return the init process of a new cluster, of the zygote that `zygote` returns."""
    while True:
        try:
            return zygote().connect(deadlines, isolate=isolate)
        except ZygoteDied:
            continue  # no task has started yet; `living` restarts or raises


class InitConnection(Protocol):
    """The connection to the init process of a cluster: one on this machine, or one per node."""

    pid: int  # of the init process; 0 if it is not one of this machine

    @property
    def clock_error_s(self) -> float:
        """Return by how much the times of two tasks may be wrong in their difference."""
        ...

    def send(self, **message: Any) -> None: ...

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived; the event files hold what came before them."""
        ...

    def hold(self, task: str, path: Path) -> Callable[[], None]:
        """Lock a file, so that the task blocks that locks it; return the release."""
        ...

    def use(self, task: str, proportional: bool) -> TaskUse | None:
        """Return what the process of a task has used; None once it has exited."""
        ...

    def end_node(self, task: str) -> None:
        """End the node of a task, and all tasks there."""
        ...

    def move(self) -> tuple[dict[str, str], dict[str, str]]:
        """Place the tasks whose node was ended elsewhere; return their addresses and GPUs."""
        ...

    def close(self, deadlines: Deadlines) -> None:
        """End all tasks of the cluster."""
        ...


class ClusterInit:
    """The non-blocking connection to the init process of one cluster; see zygote.py."""

    def __init__(self, connection: socket.socket, zygote: Zygote) -> None:
        self.connection = connection
        self.zygote = zygote
        self.connection.setblocking(False)
        self.partial = b""
        self.pid = 0
        self.pids: dict[str, int] = {}  # of the tasks that have started
        self.clock_error_s = 0.0  # all tasks read the clock of this machine

    def send(self, **message: Any) -> None:
        try:
            self.connection.setblocking(True)
            self.connection.sendall((json.dumps(message) + "\n").encode())
            self.connection.setblocking(False)
        except OSError as error:
            raise self._gone(f"is gone: {error}") from error

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived; HarnessError if the init process has ended."""
        messages: list[dict[str, Any]] = []
        while True:
            try:
                data = self.connection.recv(65536)
            except BlockingIOError:
                return messages
            except OSError as error:
                raise self._gone(f"is gone: {error}") from error
            if not data:
                if messages:
                    return messages
                raise self._gone("ended by itself")
            *complete, self.partial = (self.partial + data).split(b"\n")
            new = [json.loads(line) for line in complete]
            self.pids.update({m["task"]: m["pid"] for m in new if m["op"] == "spawned"})
            messages += new

    def hold(self, task: str, path: Path) -> Callable[[], None]:  # noqa: ARG002 - one machine
        """Lock a file, so that the task blocks that locks it; return the release."""
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file.close

    def use(self, task: str, proportional: bool) -> TaskUse | None:
        return TaskUse.of(self.pids[task], proportional)

    def end_node(self, task: str) -> None:
        raise Unsupported(f"the node of {task} is this machine, which cannot be ended")

    def move(self) -> tuple[dict[str, str], dict[str, str]]:
        return {}, {}

    def _gone(self, how: str) -> HarnessError:
        """Return the error for a broken connection; ZygoteDied if the zygote has ended."""
        end = self.zygote.end()
        return ZygoteDied(end) if end else HarnessError(f"the cluster's init process {how}")

    def close(self, deadlines: Deadlines) -> None:
        """Close the connection, which ends the cluster, and wait for the init process to end."""
        self.connection.close()
        self.zygote.worked |= not self.zygote.has_died()
        try:
            wait_until(f"init process {self.pid} to end", self._has_ended, deadlines.exit_s)
        except TimeoutError as error:
            os.kill(self.pid, signal.SIGKILL)  # its namespace or the death signal ends the tasks
            raise HarnessError(str(error)) from error

    def _has_ended(self) -> bool:
        """Return True if the process has ended; without a zygote it may stay a zombie."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] in ("Z", "X")
