"""Detect connections to a cluster's leased ports from programs outside of the cluster.

On leased ports TensorFlow's server accepts connections from any program that can reach it, and data
from such a program may break a run. That is no failure of TensorFlow, so the verdict is a harness
error. The kernel's tables of TCP connections list the user and the inode of each local socket. The
inode must be among the file descriptors of the cluster's processes. A connection that opens and
closes between two looks is not detected.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from functools import cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

import psutil

from suite.harness.core.errors import HarnessError

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# include/net/tcp_states.h; CLOSE_WAIT: the peer has closed, for example a task that has ended.
ESTABLISHED, CLOSE_WAIT = "01", "08"
# Reading takes milliseconds where the kernel has room for many connections: it scans all of it.
MAX_CPU_SHARE = 0.01  # of one processor, for the checks of one cluster
MIN_INTERVAL_S = 0.1  # longer where MAX_CPU_SHARE requires it


class End(NamedTuple):
    """One end of a connection: its address, the peer's address, and the owner of the socket."""

    address: str
    port: int
    peer_address: str
    peer_port: int
    uid: int
    inode: int  # 0 if the process has closed the socket


class PortWatch:
    """Check, while a cluster is alive, that only its own processes are connected to its ports."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.tasks = {int(a.rsplit(":", 1)[1]): task for task, a in addresses.items()}
        self.own: set[int] = set()  # inodes of sockets that belong to the cluster's processes
        self.next_s = 0.0
        self.is_over = False

    def look(self, cluster_init: int, *, now: bool = False) -> None:
        """Raise HarnessError, once, for a foreign connection; check when due, or if `now`.

        `cluster_init`: pid of the process whose descendants are the cluster.
        """
        if self.is_over or (not now and time.monotonic() < self.next_s):
            return
        began_s = time.thread_time()
        found = self._foreign(cluster_init)
        if found:
            # A socket that closed after the table was read no longer belongs to a process.
            found &= self._foreign(cluster_init)
        took_s = time.thread_time() - began_s
        self.next_s = time.monotonic() + max(MIN_INTERVAL_S, took_s / MAX_CPU_SHARE)
        if found:
            self.is_over = True
            raise HarnessError(self._describe(min(found)))

    def _foreign(self, cluster_init: int) -> set[End]:
        """Return the tasks' ends with a peer on another machine, and foreign local peers."""
        ends = list(table(self.tasks))
        elsewhere = {e for e in ends if e.port in self.tasks and not is_local(e.peer_address)}
        peers = {
            e for e in ends if e.peer_port in self.tasks and e.inode and is_local(e.peer_address)
        }
        others = {e for e in peers if e.uid != os.geteuid()}
        unknown = {e for e in peers - others if e.inode not in self.own}
        if unknown:
            self.own, complete = sockets_of_cluster(cluster_init)
            unknown = {e for e in unknown if e.inode not in self.own} if complete else set()
        return elsewhere | others | unknown

    def _describe(self, end: End) -> str:
        if end.port in self.tasks:
            who, port = f"at {end.peer_address}", end.port
        else:
            pid = owner(end.inode)
            who, port = f"(uid {end.uid}{pid and f', pid {pid}'})", end.peer_port
        return f"another program {who} is connected to port {port} of {self.tasks[port]}"


def table(ports: Container[int]) -> Iterator[End]:
    """Yield the local ends of connections from or to these ports.

    Connections are either open or closed by the peer only.
    """
    for path in TABLES:
        with suppress(OSError):  # a kernel without IPv6 has no table of it
            for line in path.read_text().splitlines()[1:]:
                fields = line.split()
                (own, port), (peer, peer_port) = (field.split(":") for field in fields[1:3])
                port, peer_port = int(port, 16), int(peer_port, 16)
                is_asked_for = port in ports or peer_port in ports
                if is_asked_for and fields[3] in (ESTABLISHED, CLOSE_WAIT):
                    uid, inode = int(fields[7]), int(fields[9])
                    yield End(_address(own), port, _address(peer), peer_port, uid, inode)


def _address(words: str) -> str:
    """Return the address of hex text such as "0100007F": 32-bit words in host byte order."""
    packed = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def is_local(address: str) -> bool:
    """Return True for an address of this machine."""
    return ip_address(address).is_loopback or address in _own_addresses()


@cache
def _own_addresses() -> frozenset[str]:
    found = (a.address for each in psutil.net_if_addrs().values() for a in each)
    return frozenset(address.split("%")[0] for address in found)


def sockets_of_cluster(cluster_init: int) -> tuple[set[int], bool]:
    """Return inodes of the sockets of the init process and its descendants, and if all were listed.

    A process that is ending may hold sockets that it no longer lists.
    """
    found: set[int] = set()
    complete = True
    with suppress(psutil.NoSuchProcess):
        processes = psutil.Process(cluster_init).children(recursive=True)
        for pid in (cluster_init, *(process.pid for process in processes)):
            inodes = sockets(pid)
            complete = complete and inodes is not None
            found |= inodes or set()
    return found, complete


def sockets(pid: int) -> set[int] | None:
    """Return inodes of a process's sockets; None if it is ending or belongs to another user."""
    found: set[int] = set()
    directory = Path(f"/proc/{pid}/fd")
    try:
        descriptors = list(directory.iterdir())
    except FileNotFoundError:
        return found  # the process has ended
    except PermissionError:
        descriptors = []  # without root, once the process has freed its memory
    if not descriptors:
        return found if _is_dead(pid) else None
    for descriptor in descriptors:
        with suppress(OSError):
            kind, _, inode = os.readlink(descriptor).partition(":")
            if kind == "socket":
                found.add(int(inode.strip("[]")))
    return found


def _is_dead(pid: int) -> bool:
    """Return True if the process and all its threads have ended; it may not be reaped yet."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return len(threads) <= 1 and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, psutil.NoSuchProcess):
        return True


def owner(inode: int) -> int | str:
    """Return the pid of the process that owns a socket; "" if this user cannot see it."""
    return next((pid for pid in psutil.pids() if inode in (sockets(pid) or ())), "")


@cache
def is_reliable() -> bool:
    """Return True if the tables show the owners of sockets here; probe it with one connection.

    A sandbox that emulates a kernel may omit owners, and then all connections would seem foreign.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        port, inode = client.getsockname()[1], os.fstat(client.fileno()).st_ino
        seen = [(e.uid, e.inode) for e in table({port}) if e.port == port]
        return seen == [(os.geteuid(), inode)] and inode in (sockets(os.getpid()) or ())
