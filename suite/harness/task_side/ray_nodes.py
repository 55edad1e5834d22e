"""Start a Ray cluster of several nodes on this machine, until standard input ends.

Run by file path in a process of its own, with Ray installed. It prints one JSON line: the address
and why the nodes share the machine's network, if they do; or an error. Ray's processes end with
this one, and it ends when pytest ends in any way.

Each node has a network namespace of its own where the kernel allows it. A bridge joins them, in
another namespace; a veth pair connects the bridge to the machine's network, in which the head node
and the driver are. The namespaces have no name, so the kernel removes them, and all links, with the
last of these processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

# Run by path: this directory is first on sys.path.
import namespaces
import network_links
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

STORE_BYTES = 80 * 2**20  # of each node's object store; Ray's minimum is 75 MiB
PROCESSORS = 64  # of each node, as Ray counts them: tasks share the real ones
SUBNETS = "10.78.{number}."
HEAD = 254  # last part of the head's address


class NoNetworks(Exception):
    """Nodes cannot have networks of their own here."""


@dataclass(frozen=True)
class Networks:
    """A network for each node, and the head's address in the network that joins them."""

    head: str
    nodes: dict[str, str]  # address -> path of the namespace
    subnet: socket.socket  # reserves the subnet


def reserved_subnet() -> tuple[str, socket.socket]:
    """Return the first part of the addresses of a subnet that nothing else on this machine uses."""
    with IPRoute() as ip:
        used = {message.get_attr("IFA_ADDRESS") for message in ip.get_addr(family=socket.AF_INET)}
    for number in range(256):
        prefix = SUBNETS.format(number=number)
        if any(address.startswith(prefix) for address in used):
            continue
        lease = socket.socket(socket.AF_UNIX)
        try:
            lease.bind(f"\0tfdc-subnet-{prefix}")
        except OSError:  # another session is about to use it
            lease.close()
            continue
        return prefix, lease
    raise NoNetworks(f"all subnets {SUBNETS.format(number='N')}0/24 are in use")


def new_network() -> str:
    """Create a network namespace and return its path."""

    def create() -> int:
        namespaces.become_host()
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    # A namespace is that of a thread: this one stays where it is.
    with ThreadPoolExecutor(1) as thread:
        return f"/proc/{os.getpid()}/fd/{thread.submit(create).result()}"


@contextlib.contextmanager
def within(network: str) -> Iterator[None]:
    """Start the processes of this block in that network."""
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        namespaces.join(network, namespaces.CLONE_NEWNET)
        yield
    finally:
        namespaces.join(f"/proc/self/fd/{outside}", namespaces.CLONE_NEWNET)
        os.close(outside)


def join_networks(nodes: int) -> Networks:
    """Create the networks and their links; raise NoNetworks, with the reason, if that fails."""
    try:
        prefix, subnet = reserved_subnet()
        switch, own = new_network(), f"/proc/{os.getpid()}/ns/net"
        found = {f"{prefix}{number}": new_network() for number in range(1, nodes + 1)}
        head = f"{prefix}{HEAD}"
        with IPRoute(netns=switch) as ip:
            network_links.add_bridge(ip)
            network_links.Link(ip, 0, own, head, name=f"tfdc{os.getpid()}")
            for number, (address, network) in enumerate(found.items(), 1):
                network_links.Link(ip, number, network, address)
    except (OSError, NetlinkError) as error:
        raise NoNetworks(str(error)) from error
    return Networks(head, found, subnet)


def start(nodes: int) -> tuple[Any, str]:
    """Return Ray's cluster, and why its nodes have no networks of their own; "" if they have."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    store: dict[str, Any] = {"object_store_memory": STORE_BYTES}
    head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False, **store}
    node = {"num_cpus": PROCESSORS, **store}
    try:
        networks, reason = join_networks(nodes), ""
        head["node_ip_address"] = networks.head
    except NoNetworks as error:
        networks, reason = None, str(error)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    if networks is None:
        for _ in range(nodes):
            cluster.add_node(**node)
    else:
        for address, network in networks.nodes.items():
            with within(network):
                cluster.add_node(node_ip_address=address, **node)
    cluster.wait_for_nodes()
    return cluster, reason


def main() -> int:
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_DISABLE_IMPORT_WARNING="1",
        # Ray would kill an agent where the tasks, which are not Ray's, need most of the memory.
        RAY_memory_monitor_refresh_ms="0",
    )
    # Ray and its processes print to standard output, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        cluster, reason = start(int(sys.argv[1]))
    except Exception as error:  # the caller reports it, whatever it is
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return 1
    answer = {"address": cluster.address, "shared_network": reason}
    print(json.dumps(answer), file=answers, flush=True)
    sys.stdin.read()
    cluster.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
