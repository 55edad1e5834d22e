"""Finds connections to a cluster's leased ports from programs outside of the cluster.

On leased ports TensorFlow's server accepts connections from any program that can reach it, and what
such a program sends may break a run. TensorFlow did not fail then: the verdict is a harness error.
The kernel's tables of TCP connections have the user and the inode of each socket of this machine.
The inode has to be among the file descriptors of the cluster's processes. A connection that opens
and closes between two looks is not found.
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
# include/net/tcp_states.h; in CLOSE_WAIT the peer has closed, as a task that has ended did.
ESTABLISHED, CLOSE_WAIT = "01", "08"
# A look takes milliseconds where the kernel has room for many connections: it reads all of it.
MAX_CPU_SHARE = 0.01  # of one processor, for the looks of one cluster
MIN_INTERVAL_S = 0.1  # longer where MAX_CPU_SHARE demands it


class End(NamedTuple):
    """One end of a connection: its own address, the peer's, and the owner of the socket."""

    address: str
    port: int
    peer_address: str
    peer_port: int
    uid: int
    inode: int  # 0 for a socket that its process has closed


class PortWatch:
    """Check, while a cluster lives, that only its own processes are connected to its ports."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.tasks = {int(a.rsplit(":", 1)[1]): task for task, a in addresses.items()}
        self.own: set[int] = set()  # inodes of sockets that belong to the cluster's processes
        self.next_s = 0.0
        self.is_over = False

    def look(self, cluster_init: int, *, now: bool = False) -> None:
        """Raise HarnessError, once, for a foreign connection; look if it is time to, or `now`.

        `keeper`: the process whose descendants are the cluster.
        """
        if self.is_over or (not now and time.monotonic() < self.next_s):
            return
        began_s = time.thread_time()
        found = self._foreign(cluster_init)
        if found:
            # A socket that closed after the table was read belongs to no process any more.
            found &= self._foreign(cluster_init)
        took_s = time.thread_time() - began_s
        self.next_s = time.monotonic() + max(MIN_INTERVAL_S, took_s / MAX_CPU_SHARE)
        if found:
            self.is_over = True
            raise HarnessError(self._describe(min(found)))

    def _foreign(self, cluster_init: int) -> set[End]:
        """Return tasks' ends whose peer is another machine, and peers outside of the cluster."""
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
    """Yield the ends, on this machine, of connections from or to these ports.

    Of those that are open, or that the peer has closed.
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
    """Return the address of "0100007F": words of 32 bits, as they lie in memory."""
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
    """Return inodes of the sockets of the keeper's descendants, and whether that is all of them.

    A process that is ending holds sockets that it does not list any more.
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
    """Return inodes of a process's sockets; None if it is ending, or another user's."""
    found: set[int] = set()
    directory = Path(f"/proc/{pid}/fd")
    try:
        descriptors = list(directory.iterdir())
    except FileNotFoundError:
        return found  # it has ended
    except PermissionError:
        descriptors = []  # of a process that has freed its memory, to users other than root
    if not descriptors:
        return found if _is_dead(pid) else None
    for descriptor in descriptors:
        with suppress(OSError):
            kind, _, inode = os.readlink(descriptor).partition(":")
            if kind == "socket":
                found.add(int(inode.strip("[]")))
    return found


def _is_dead(pid: int) -> bool:
    """Return True if it has ended with all its threads, though it may not be reaped yet."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return len(threads) <= 1 and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, psutil.NoSuchProcess):
        return True


def owner(inode: int) -> int | str:
    """Return the process that has a socket, "" if this user may not see it."""
    return next((pid for pid in psutil.pids() if inode in (sockets(pid) or ())), "")


@cache
def is_reliable() -> bool:
    """Return True if the tables name the owners of sockets here; try it on a connection.

    A sandbox that imitates a kernel may leave that out: all connections would seem foreign.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        port, inode = client.getsockname()[1], os.fstat(client.fileno()).st_ino
        seen = [(e.uid, e.inode) for e in table({port}) if e.port == port]
        return seen == [(os.geteuid(), inode)] and inode in (sockets(os.getpid()) or ())
