"""Addresses for clusters: a private network for each, or leased ports where that is impossible.

In its own namespace (namespaces.py) every cluster uses the same addresses, and clusters cannot
reach each other. Where the kernel forbids namespaces, ports are leased by locking a file. They are
outside the kernel's ephemeral range, and a test must never get a port in use. Tasks connect to
127.0.0.1, but TensorFlow listens on every interface: leased ports are closed to other users and
machines where permissions allow it (firewall.py), and connections are checked (connections.py).
"""

from __future__ import annotations

import errno
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from suite.harness.cluster import connections, firewall, virtual_hosts
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.paths import TASK_SIDE, private_directory

HOST = "127.0.0.1"
FIRST_PORT = 2222  # in a namespace: the port of the documentation's examples
ISOLATION = TASK_SIDE / "namespaces.py"
PROBE_S = 20.0

# Ports that may be leased: above those of well-known services, below Linux's ephemeral ports
# (from 32768 unless an administrator changed it).
LOWEST, HIGHEST = 10_000, 65_535
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
FEWEST = 1_000  # if fewer ports than this lie below the ephemeral range, consider those above


NAMESPACE, LEASED_PORTS = "namespace", "leased-ports"
RAY = "ray"  # the network of the nodes of a Ray cluster
REMEDY = (
    "allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, "
    "docker run --security-opt seccomp=unconfined), or run as root with nft or iptables"
)

REMEDIES = {RAY: "close the network of the Ray cluster's nodes to other machines"}


@dataclass(frozen=True)
class Network:
    """The isolation of clusters here, with its reason; run.json and pytest's header report both."""

    kind: str  # NAMESPACE or LEASED_PORTS
    reason: str
    firewall: str = ""  # the tool that closes leased ports, see firewall.py; "" for none
    why_open: str = ""  # why no tool can

    @property
    def open_ports(self) -> bool:
        """Return True if other users and machines can reach the tasks."""
        return self.kind in (LEASED_PORTS, RAY) and not self.firewall

    @property
    def remedy(self) -> str:
        """Return what would close the open ports; "" if there are none."""
        return REMEDIES.get(self.kind, REMEDY) if self.open_ports else ""

    @property
    def warning(self) -> str:
        """Return a one-line warning about open ports; "" if there are none."""
        if not self.open_ports:
            return ""
        return (
            "open ports: tasks listen on every interface without authentication, other users and "
            f"machines can reach them; remedy: {self.remedy}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the network section of run.json."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "open_ports": self.open_ports,
            "firewall": self.firewall,
            "remedy": self.remedy,
            "connections_checked": self.kind == LEASED_PORTS and connections.is_reliable(),
        }

    def with_closed_ports(self, session: str) -> Network:
        """Probe which tool can close leased ports here, and return a network that uses it."""
        if self.kind == NAMESPACE:
            return self
        found, reasons = firewall.probe(session)
        return replace(self, firewall=found, why_open=reasons)

    def check_own_ports(self, program: str) -> None:
        """Raise Unsupported, except in a namespace, for a program that chooses its own ports.

        Such ports are open to others: no rule closes them, and connections to them are not checked.
        """
        if self.kind != NAMESPACE:
            raise Unsupported(f"{program} picks ports of its own: that needs namespaces")

    def check_namespaces(self, on_hosts: bool, on_disk: bool) -> None:
        """Raise Unsupported for virtual hosts or a disk where clusters have no namespaces."""
        if (on_hosts or on_disk) and self.kind != NAMESPACE:
            wanted = "hosts" if on_hosts else "a disk"
            raise Unsupported(f"{wanted} of their own need namespaces: {self.reason}")

    def watch(self, addresses: Mapping[str, str]) -> connections.PortWatch | None:
        """Return a watch on leased ports; None in a namespace, or if owners cannot be found."""
        if self.kind == NAMESPACE or not connections.is_reliable():
            return None
        return connections.PortWatch(addresses)

    def addresses(
        self,
        tasks: Sequence[str],
        on_hosts: bool = False,
        on_disk: bool = False,
        session: str = "",
    ) -> tuple[dict[str, str], Callable[[], None]]:
        """Return task -> address for one cluster, and a function that releases the addresses.

        `session` is part of the names of the firewall's rules, if there are any. Raise Unsupported
        for virtual hosts or a disk where clusters have no namespaces.
        """
        self.check_namespaces(on_hosts, on_disk)
        if on_hosts:
            return virtual_hosts.addresses(tasks), lambda: None
        if self.kind == NAMESPACE:
            return addresses(tasks), lambda: None
        with ExitStack() as stack:
            leases = PortLeases()
            stack.callback(leases.release)
            ports = leases.lease(len(tasks))
            if self.firewall:
                stack.callback(firewall.Firewall(self.firewall, session, ports).close)
            return addresses(tasks, ports), stack.pop_all().close


@cache
def probe(python: str = sys.executable) -> Network:
    """Try a cluster's isolation in a separate process; cached for each interpreter."""
    command = [python, str(ISOLATION)]
    try:
        tried = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Network(LEASED_PORTS, f"private networks could not be tried: {error}")
    if tried.returncode == 0:
        return Network(NAMESPACE, "each cluster has a user, network and PID namespace of its own")
    said = tried.stderr.strip().splitlines() or [f"exit {tried.returncode}"]
    return Network(
        "leased-ports", f"this kernel or container allows no private network: {said[-1]}"
    )


@cache
def has_netem(python: str = sys.executable) -> bool:
    """Return True if links of virtual hosts can get delay and loss; probed once, on first use."""
    try:
        tried = subprocess.run(
            [python, str(virtual_hosts.PROGRAM)], capture_output=True, timeout=PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def addresses(tasks: Sequence[str], ports: Sequence[int] | None = None) -> dict[str, str]:
    """Return task -> "127.0.0.1:port"; without leased ports those of a private network."""
    chosen = ports if ports is not None else range(FIRST_PORT, FIRST_PORT + len(tasks))
    return {task: f"{HOST}:{port}" for task, port in zip(tasks, chosen, strict=True)}


def candidates() -> range:
    """Return ports outside the kernel's ephemeral range."""
    try:
        low, high = (int(part) for part in EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        low, high = 32_768, 60_999
    below, above = range(LOWEST, low), range(max(high + 1, LOWEST), HIGHEST + 1)
    return below if len(below) >= FEWEST else max(below, above, key=len)


def lock_directory() -> Path:
    """Return this user's private directory; raise HarnessError if another user can access it."""
    return private_directory("port leases")


@dataclass
class PortLeases:
    """Ports that no other suite of this user takes; the kernel frees a dead process's locks."""

    directory: Path = field(default_factory=lock_directory)
    held: dict[int, FileLock] = field(default_factory=dict)

    def lease(self, count: int) -> tuple[int, ...]:
        """Lease that many unused ports; raise HarnessError if there are too few."""
        taken: list[int] = []
        for port in self._in_random_order():
            if len(taken) < count and self._take(port):
                taken.append(port)
            if len(taken) == count:
                return tuple(taken)
        self.release(taken)
        raise HarnessError(f"{count} free ports were wanted, {len(taken)} were found")

    def release(self, ports: Sequence[int] | None = None) -> None:
        """Release these leases, or all."""
        for port in tuple(self.held) if ports is None else ports:
            self.held.pop(port).release()

    def _in_random_order(self) -> Iterator[int]:
        """Yield the ports from a random start, so that concurrent suites rarely collide."""
        ports = candidates()
        start = random.randrange(len(ports))
        yield from (ports[(start + i) % len(ports)] for i in range(len(ports)))

    def _take(self, port: int) -> bool:
        if port in self.held:
            return False
        # Not thread-local: a test may time out in one thread and be cleaned up in another.
        lock = FileLock(self.directory / f"{port}.lock", timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            return False
        if not is_free(port):
            lock.release()
            return False
        self.held[port] = lock
        return True


FAMILIES: Mapping[socket.AddressFamily, str] = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}


def is_free(port: int) -> bool:
    """Return True if the port can be bound on every interface, as TensorFlow's server does."""
    for family, anywhere in FAMILIES.items():
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.bind((anywhere, port))
        except OSError as error:
            # A machine without IPv6 has no such family or no such address.
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                return False
    return True
