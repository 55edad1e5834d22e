"""The part of the suite on one node of a Ray cluster: start tasks, return what they write.

Ray runs one agent per node, as an actor. The agent starts the same zygotes and init processes as
the local engine. It ends with the driver, and its zygotes with it: their standard input closes.

Tasks write their event files and logs below the agent's own directory. `poll` returns what is new,
so a node that dies loses only the end of its files that was not read yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import psutil

from suite.harness.cluster import leaks, zygote_client
from suite.harness.cluster.addresses import PortLeases
from suite.harness.cluster.harness_use import HarnessUse
from suite.harness.cluster.task_use import TaskUse
from suite.harness.cluster.zygote_client import ClusterInit, Zygote
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import HarnessError
from suite.harness.core.paths import ROOT

POLL_S = 0.25  # `poll` returns after this time even if nothing is new
EVENTS = ".jsonl"
GROWING = (EVENTS, ".log")  # files to which tasks append; other files are returned whole
PR_SET_PDEATHSIG = 1  # prctl(2)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The change of an offset per second that NTP assumes of a clock (PHI in RFC 5905, section 7.2).
DRIFT = 15e-6
HOLD = ".hold"  # suffix of files that tasks lock; they have no content

# What `poll` returns: messages of the init process, and pieces of files: path below the agent's
# directory, offset, content. The content replaces the file from the offset on.
Piece = tuple[str, int, bytes]
Poll = tuple[list[dict[str, Any]], list[Piece]]


def boot_id() -> str:
    """Return the id of this machine's boot; processes with equal ids share CLOCK_MONOTONIC."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


@dataclass
class Files:
    """The files below some directories, and how much of each was returned."""

    root: Path
    directories: Sequence[str]  # below the root
    read: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and modification time

    def new(self, *, rest: bool = False) -> list[Piece]:
        """Return what is new; files that tasks append to come last.

        The driver changes times and paths in event lines, so an incomplete line waits for its end,
        except for the `rest` after the end of the tasks.

        A task writes a file before the event that names it. The sizes of event files are taken
        first, so a reader that applies the pieces in order has every file that an event names.
        """
        found = [path for name in self.directories for path in (self.root / name).rglob("*")]
        sizes: dict[Path, tuple[int, int]] = {}
        for path in sorted(found, key=lambda path: path.suffix not in GROWING):
            with contextlib.suppress(FileNotFoundError):
                found_now = path.stat()
                if stat.S_ISREG(found_now.st_mode) and path.suffix != HOLD:
                    sizes[path] = (found_now.st_size, found_now.st_mtime_ns)
        pieces = []
        for path in sorted(sizes, key=lambda path: path.suffix in GROWING):
            name, (size, modified) = str(path.relative_to(self.root)), sizes[path]
            grows, seen = path.suffix in GROWING, self.read.get(name)
            if seen == (size, modified) or (grows and seen and seen[0] == size):
                continue
            # A log that became shorter was cut to its end.
            start = seen[0] if grows and seen and size >= seen[0] else 0
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(start)
                content = file.read(size - start)
                if path.suffix == EVENTS and not rest:
                    content = content[: content.rfind(b"\n") + 1]
                    if not content:
                        continue
                pieces.append((name, start, content))
                self.read[name] = (start + len(content), modified)
        return pieces


@dataclass
class Tasks:
    """The tasks of one cluster on this node."""

    connection: ClusterInit
    files: Files
    locks: dict[str, Callable[[], None]] = field(default_factory=dict)  # releases, by path
    lock: Lock = field(default_factory=Lock)  # `poll` and `close` run in different threads
    closed: bool = False

    def new(self) -> Poll:
        """Return messages and files; the files hold all that a task wrote before its exit."""
        with self.lock:
            if self.closed:
                return [], []
            messages = self.connection.receive()
            return messages, self.files.new()


class NodeAgent:
    """An actor; the methods run in several threads. Errors are HarnessError, as everywhere."""

    def __init__(self, deadlines: Deadlines, session: str) -> None:
        self.deadlines = deadlines
        self.session = session
        self.directory = Path(tempfile.mkdtemp(prefix="tfdc-node-"))
        self.zygotes: dict[str, Zygote] = {}
        self.how: dict[str, Callable[..., Zygote]] = {}  # starts the zygote of a name
        self.restarts: list[str] = []
        self.clusters: dict[str, Tasks] = {}
        self.leases: dict[str, PortLeases] = {}
        self.directories: list[Path] = []  # of zygotes that were stopped
        self.lock = Lock()

    def end_with_node(self) -> None:
        """Have this process killed at the end of its parent, the node's raylet.

        Ray 2.60 leaves an actor alive whose raylet was killed.
        """
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def describe(self, python: str) -> dict[str, Any]:
        """Return the facts about this node that the start-up check and run.json need."""
        return {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "kernel": platform.release(),
            "boot_id": boot_id(),
            "directory": str(self.directory),
            "interpreter": os.access(python, os.X_OK),
            "root": str(ROOT),
        }

    def clock(self) -> float:
        """Return CLOCK_MONOTONIC in seconds."""
        return time.monotonic()

    def own_directories(self) -> list[str]:
        """Return the directories that are left behind if this node ends."""
        zygotes = [zygote.directory for zygote in self.zygotes.values()]
        return [str(path) for path in (self.directory, *zygotes)]

    def harness_use(self) -> HarnessUse:
        """Return what this agent has used so far."""
        return HarnessUse.now()

    def has(self, path: str, content: str) -> bool:
        """Return True if the file exists here and has this content."""
        try:
            return Path(path).read_text() == content
        except OSError:
            return False

    def warm(
        self,
        name: str,
        python: str,
        env: Mapping[str, str],
        spawn: str,
        preload: Sequence[str],
    ) -> None:
        """Start the zygote of this name unless it runs; it imports TensorFlow in background."""
        own = {**env, "TFDC_SHARED_NETWORK": "1"}  # with the node's other clusters
        log = self.directory / f"zygote-{name}.log"
        self.how[name] = partial(Zygote.start, python, own, spawn=spawn, preload=preload, log=log)
        self._zygote(name)

    def _zygote(self, name: str) -> Zygote:
        """Return the living zygote of this name; start it if needed."""
        own = (self.zygotes, name, self.how[name], self.restarts, self.deadlines)
        with self.lock:
            return zygote_client.living(*own)

    def import_s(self, name: str) -> float:
        """Return the seconds in which the zygote of this name imported its modules."""
        return self.zygotes[name].wait_ready(self.deadlines)["import_s"]

    def lease(self, cluster: str, count: int) -> tuple[int, ...]:
        """Lease free ports for a cluster; `release` ends the lease."""
        leases = self.leases.setdefault(cluster, PortLeases())
        return leases.lease(count)

    def release(self, cluster: str) -> None:
        leases = self.leases.pop(cluster, None)
        if leases:
            leases.release()

    def open(self, cluster: str, zygote: str, directories: Sequence[str]) -> None:
        """Start the init process of a cluster on this node.

        `directories` are those of the cluster's files, below the agent's own.
        """
        for name in directories:
            (self.directory / name).mkdir(parents=True)
        connection = zygote_client.connect(
            lambda: self._zygote(zygote), self.deadlines, isolate=False
        )
        self.clusters[cluster] = Tasks(connection, Files(self.directory, directories))

    def deaths(self) -> list[str]:
        """Return how each zygote died that was restarted."""
        return self.restarts

    def send(self, cluster: str, message: Mapping[str, Any]) -> None:
        tasks = self.clusters[cluster]
        with tasks.lock:
            tasks.connection.send(**message)

    def poll(self, cluster: str) -> Poll:
        """Return new messages and pieces of files as soon as there are any, or after POLL_S."""
        tasks = self.clusters.get(cluster)
        if tasks is None:
            return [], []

        def news() -> Poll | None:
            new = tasks.new()
            return new if any(new) else None

        with contextlib.suppress(TimeoutError):
            return wait_until("news", news, POLL_S)
        return [], []

    def use(self, cluster: str, task: str, proportional: bool) -> TaskUse | None:
        """Return what the process of a task has used; None once it has exited."""
        return self.clusters[cluster].connection.use(task, proportional)

    def put(self, name: str, content: bytes) -> None:
        """Write a file below the agent's directory."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def hold(self, cluster: str, path: str) -> None:
        """Lock a file, so that a task that locks it blocks until `let_go`."""
        tasks = self.clusters[cluster]
        tasks.locks[path] = tasks.connection.hold("", Path(path))

    def let_go(self, cluster: str, path: str) -> None:
        tasks = self.clusters.get(cluster)
        release = tasks.locks.pop(path, None) if tasks else None
        if release:
            release()

    def close(self, cluster: str) -> list[Piece]:
        """End the cluster's tasks on this node and return the rest of their files."""
        tasks = self.clusters.pop(cluster, None)
        if tasks is None:
            return []
        with tasks.lock:
            tasks.closed = True
            for release in tasks.locks.values():
                release()
            try:
                tasks.connection.close(self.deadlines)
            finally:
                rest = tasks.files.new(rest=True)
                for name in tasks.files.directories:
                    shutil.rmtree(self.directory / name, ignore_errors=True)
        return rest

    def stop(self, prefix: str) -> None:
        """End the zygotes whose name has this prefix, and all their tasks.

        With the prefix "" the agent's directory is removed, too.
        """
        for cluster in [name for name in self.clusters if name.startswith(prefix)]:
            with contextlib.suppress(HarnessError):
                self.close(cluster)
        for name in [name for name in self.zygotes if name.startswith(prefix)]:
            zygote = self.zygotes.pop(name)
            zygote.stop(self.deadlines)
            self.directories.append(zygote.directory)
        if not prefix:
            shutil.rmtree(self.directory, ignore_errors=True)

    def left_behind(self) -> list[str]:
        """Return the session's processes on this machine, and directories of its zygotes."""
        return leaks.processes(self.session) + leaks.directories(self.directories)


@dataclass(frozen=True)
class Clock:
    """CLOCK_MONOTONIC of a node, as compared with this machine's at `read_s`."""

    offset_s: float = 0.0  # by which it is ahead
    error_s: float = 0.0
    read_s: float = 0.0

    def error_at(self, time_s: float) -> float:
        """Return the error of the offset at another time; 0 for this machine's own clock."""
        return self.error_s and self.error_s + DRIFT * abs(time_s - self.read_s)


def compare_clocks(now: Callable[[], float], times: int) -> Clock:
    """Return by how many seconds another clock is ahead of CLOCK_MONOTONIC, and the error.

    `now` asks the other clock. Of `times` round trips the shortest counts: the answer was read
    between its two ends, so the error is half of it.
    """
    best, after = (float("inf"), 0.0), 0.0
    for _ in range(times):
        before = time.monotonic()
        there = now()
        after = time.monotonic()
        best = min(best, (after - before, there - (before + after) / 2))
    return Clock(best[1], best[0] / 2, after)
