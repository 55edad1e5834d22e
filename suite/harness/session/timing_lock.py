"""Serialize the timed parts of several runs on one machine: one run times, the others wait.

The lock is a name in Linux's abstract namespace of Unix sockets. Every user of the machine can take
it. It needs no file that another user could prepare, and the kernel frees it however its process
ends. Containers with their own network have their own such namespace.

Only timed runs take the lock. If untimed clusters took a shared lock as well, whole suites would
run one after the other. interference.Watch records the CPU use of other processes.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable

from suite.harness.core.deadlines import wait_until

NAME = "tf-distribute-conformance-timing"
CREDENTIALS = struct.Struct("3i")  # pid, uid and gid of a peer


class TimingLock:
    """The machine's lock for timing; `held` is True if this process has it.

    `patience_s`: total time that a whole run waits for the lock, over all its tests.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.address = f"\0{NAME}"
        self.socket: socket.socket | None = None

    @property
    def held(self) -> bool:
        return self.socket is not None

    def acquire(self, announce: Callable[[str], None]) -> None:
        """Take the lock, waiting for it while patience lasts; announce the wait."""
        if self.held or self._take() or not self.patience_s:
            return
        began_s = time.monotonic()
        announce(
            f"waiting for another run on this machine{self._holder()} to finish timing "
            f"(up to {self.patience_s:.0f} s)"
        )
        with contextlib.suppress(TimeoutError):
            wait_until("the lock", lambda: self._wait(began_s) or self._take(), self.patience_s)
        self.patience_s = max(0.0, self.patience_s - (time.monotonic() - began_s))
        if not self.held:
            announce("another run is still timing: this run is timed at the same time, and marked")

    def release(self) -> None:
        """Release the lock, which wakes the waiting processes."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _take(self) -> bool:
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            taken.bind(self.address)
            taken.listen()
        except OSError as error:
            taken.close()
            if error.errno != errno.EADDRINUSE:
                self.patience_s = 0.0  # the machine forbids it, so waiting is useless
            return False
        self.socket = taken
        return True

    def _wait(self, began_s: float) -> None:
        """Return when the holder has closed its socket, or when patience is over."""
        left_s = began_s + self.patience_s - time.monotonic()
        with contextlib.suppress(OSError), self._connection(max(left_s, 0.01)) as connection:
            connection.recv(1)

    def _holder(self) -> str:
        with contextlib.suppress(OSError), self._connection(1.0) as connection:
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            if pid := CREDENTIALS.unpack(peer)[0]:  # 0: a process in another PID namespace
                return f" (process {pid})"
        return ""

    def _connection(self, within_s: float) -> socket.socket:
        """Return a connection to the lock's holder, which never accepts it; its end breaks it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(within_s)
        try:
            connection.connect(self.address)
        except OSError:
            connection.close()
            raise
        return connection
