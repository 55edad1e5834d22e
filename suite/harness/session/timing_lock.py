"""Keeps apart what several runs on one machine time: while one of them times, the others wait.

The lock is a name in Linux's abstract namespace of Unix sockets. Every user of the machine can take
it, it needs no file that somebody else could prepare, and the kernel frees it however its process
ends. Containers that have a network of their own have such a namespace of their own.

Only what is timed takes the lock. If untimed clusters took it too, shared, whole suites would run
one after the other; machine.Watch records what processes of others used.
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
    """The machine's lock on timing; `held` says whether this process has it.

    `patience_s`: how long a whole run waits for it, all its tests together.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.address = f"\0{NAME}"
        self.socket: socket.socket | None = None

    @property
    def held(self) -> bool:
        return self.socket is not None

    def acquire(self, announce: Callable[[str], None]) -> None:
        """Take the lock, or wait for it as long as the patience lasts; announce the waiting."""
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
            announce("another run is still timing: what follows is timed beside it, and marked")

    def release(self) -> None:
        """Give the lock back, which wakes those that wait."""
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
                self.patience_s = 0.0  # a machine that forbids it: waiting would not help
            return False
        self.socket = taken
        return True

    def _wait(self, began_s: float) -> None:
        """Return when the holder has closed its socket, or at the end of the patience."""
        left_s = began_s + self.patience_s - time.monotonic()
        with contextlib.suppress(OSError), self._connection(max(left_s, 0.01)) as connection:
            connection.recv(1)

    def _holder(self) -> str:
        with contextlib.suppress(OSError), self._connection(1.0) as connection:
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            if pid := CREDENTIALS.unpack(peer)[0]:  # 0: a process of another namespace
                return f" (process {pid})"
        return ""

    def _connection(self, within_s: float) -> socket.socket:
        """Return a connection to the holder, who never accepts it: it breaks when that one ends."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(within_s)
        try:
            connection.connect(self.address)
        except OSError:
            connection.close()
            raise
        return connection
