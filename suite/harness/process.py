"""The pytest side of the zygotes: one per (interpreter, environment), started early.

A zygote imports TensorFlow while pytest still collects; a Keeper is the connection to the process
that keeps one cluster. Neither outlives pytest: see zygote.py.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.harness.errors import HarnessError
from suite.harness.waiting import Deadlines, wait_until

ROOT = Path(__file__).resolve().parents[2]
# Every process of a session carries it, so that a leak can be told from somebody else's process.
SESSION_VARIABLE = "TFDC_SESSION"


@dataclass
class Zygote:
    """A process that has imported what the tasks need and forks a keeper for each connection."""

    python: str
    env: Mapping[str, str]
    spawn: str
    preload: Sequence[str]
    directory: Path
    socket_path: Path
    process: subprocess.Popen[bytes]
    ready: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        python: str,
        env: Mapping[str, str],
        *,
        spawn: str = "fork",
        preload: Sequence[str] = (),
        log: Path | None = None,
    ) -> Zygote:
        """Start it and return at once; `connect` waits until it has imported."""
        directory = Path(tempfile.mkdtemp(prefix="tfdc-"))  # 0700
        socket_path = directory / "zygote.sock"
        command = [python, str(ROOT / "suite" / "harness" / "zygote.py")]
        command += ["--socket", str(socket_path), "--root", str(ROOT), "--spawn", spawn]
        if spawn == "fork":
            command += [part for module in preload for part in ("--preload", module)]
        stderr = open(log or os.devnull, "ab")  # noqa: SIM115 - closed below, after the fork
        try:
            process = subprocess.Popen(
                command,
                # Of the tasks, too: one that is killed leaves what it had there (AutoGraph's
                # sources, a thousand in a run of the suite).
                env={**env, "TMPDIR": str(directory)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is pytest's alone; it then ends the tasks in order
            )
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise HarnessError(f"cannot start {python}: {error}") from error
        finally:
            stderr.close()
        return cls(python, env, spawn, preload, directory, socket_path, process)

    def wait_ready(self, deadlines: Deadlines) -> dict[str, Any]:
        """What it says once it has imported: pid, import_s, versions."""
        if not self.ready:
            assert self.process.stdout is not None
            readable, _, _ = select.select([self.process.stdout], [], [], deadlines.ready_s)
            line = self.process.stdout.readline() if readable else b""
            if not line:
                state = self.process.poll()
                raise HarnessError(
                    f"{self.python} did not import {', '.join(self.preload) or 'nothing'} within "
                    f"{deadlines.ready_s:.0f} s (exit {state}); see logs/zygote-*.log"
                )
            self.ready = json.loads(line)
        return self.ready

    def connect(self, deadlines: Deadlines, *, isolate: bool) -> Keeper:
        """A new cluster's keeper, in namespaces of its own when `isolate`."""
        self.wait_ready(deadlines)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.socket_path))
        except OSError as error:
            connection.close()
            raise HarnessError(f"zygote {self.process.pid} does not answer: {error}") from error
        keeper = Keeper(connection)
        keeper.send(isolate=isolate)
        first = wait_until("the keeper of a cluster", keeper.receive, deadlines.exit_s)[0]
        if first["op"] != "ready":
            keeper.close(deadlines)
            raise HarnessError(first["message"])
        keeper.pid = first["pid"]
        return keeper

    def stop(self, deadlines: Deadlines) -> None:
        """End it and everything that it forked."""
        if not self.ready:
            self.process.kill()  # it imports, so it looks at nothing yet, and has forked nothing
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
        try:
            self.process.wait(deadlines.exit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Keeper:
    """The connection to the process that keeps one cluster; not blocking, see zygote.py."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.setblocking(False)
        self.partial = b""
        self.pid = 0

    def send(self, **message: Any) -> None:
        try:
            self.connection.setblocking(True)
            self.connection.sendall((json.dumps(message) + "\n").encode())
            self.connection.setblocking(False)
        except OSError as error:
            raise HarnessError(f"the keeper of the cluster is gone: {error}") from error

    def receive(self) -> list[dict[str, Any]]:
        """Messages that have arrived; HarnessError when the keeper ended by itself."""
        messages: list[dict[str, Any]] = []
        while True:
            try:
                data = self.connection.recv(65536)
            except BlockingIOError:
                return messages
            except OSError as error:
                raise HarnessError(f"the keeper of the cluster is gone: {error}") from error
            if not data:
                if messages:
                    return messages
                raise HarnessError("the keeper of the cluster ended by itself")
            *complete, self.partial = (self.partial + data).split(b"\n")
            messages += [json.loads(line) for line in complete]

    def close(self, deadlines: Deadlines) -> None:
        """Close the connection, which ends the cluster, and wait until its keeper has ended."""
        self.connection.close()
        if not self.pid:
            return
        what, gone = f"keeper {self.pid} to end", Path(f"/proc/{self.pid}")
        try:
            wait_until(what, lambda: not gone.exists(), deadlines.exit_s)
        except TimeoutError as error:
            os.kill(self.pid, signal.SIGKILL)  # its namespace, or its tasks' death signal, follows
            raise HarnessError(str(error)) from error
