"""Start a Ray cluster of several nodes on this machine, until standard input ends.

Run by file path in a process of its own, with Ray installed. It prints one JSON line: the address,
why the nodes share the machine's network, if they do, and the path of a socket; or an error. Ray's
processes end with this one, and it ends when pytest ends in any way.

A connection to the socket gives one request, a JSON line, and gets one answer: {"end": ADDRESS}
ends a node as a loss of power does, {"start": ADDRESS} starts it again. The answer has an error, or
is empty.

Each node has a network namespace of its own where the kernel allows it. A bridge joins them, in
another namespace; a veth pair connects the bridge to the machine's network, in which the head node
and the driver are. The namespaces have no name, so the kernel removes them, and all links, with the
last of these processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Run by path: this directory is first on sys.path.
import namespaces
import network_links
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

STORE = {"object_store_memory": 80 * 2**20}  # bytes for each node; Ray's minimum is 75 MiB
PROCESSORS = 64  # of each node, as Ray counts them: tasks share the real ones
SUBNETS = "10.78.{number}."
HEAD = 254  # last part of the head's address
# Ray puts sockets below its directory, and their paths have at most 107 bytes.
BASE = "/tmp"


class NoNetworks(Exception):
    """Nodes cannot have networks of their own here."""


@dataclass(frozen=True)
class Networks:
    """A network for each node, and the head's address in the network that joins them."""

    head: str
    nodes: dict[str, str]  # address -> path of the namespace
    links: dict[str, network_links.Link]  # by address
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
        ip = IPRoute(netns=switch)  # stays open: links are cut when nodes end
        network_links.add_bridge(ip)
        network_links.Link(ip, 0, own, head, name=f"tfdc{os.getpid()}")
        links = {
            address: network_links.Link(ip, number, network, address)
            for number, (address, network) in enumerate(found.items(), 1)
        }
    except (OSError, NetlinkError) as error:
        raise NoNetworks(str(error)) from error
    return Networks(head, found, links, subnet)


@dataclass
class Nodes:
    """A Ray cluster, and its nodes by address."""

    cluster: Any  # Ray's
    networks: Networks | None
    shared_network: str  # why the nodes have no networks of their own; "" if they have
    gpus: int  # of each node, as Ray counts them
    running: dict[str, Any] = field(default_factory=dict)  # Ray's nodes

    @classmethod
    def start_all(cls, count: int, gpus: int) -> Nodes:
        """Start a head without processors, and `count` nodes."""
        from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

        head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, **STORE}
        try:
            networks, reason = join_networks(count), ""
            head["node_ip_address"] = networks.head
        except NoNetworks as error:
            networks, reason = None, str(error)
        nodes = cls(Cluster(initialize_head=True, head_node_args=head), networks, reason, gpus)
        for address in networks.nodes if networks else [""] * count:
            nodes.start(address)
        nodes.cluster.wait_for_nodes()
        return nodes

    def start(self, address: str) -> None:
        """Start a node at that address; at the machine's if nodes share its network."""
        own = {"num_cpus": PROCESSORS, "num_gpus": self.gpus, **STORE}
        if self.networks is None:
            self.cluster.add_node(**own)
            return
        network_links.whole(self.networks.links[address])
        with within(self.networks.nodes[address]):
            self.running[address] = self.cluster.add_node(node_ip_address=address, **own)

    def end(self, address: str) -> None:
        """End a node as a loss of power does: it sends nothing any more, not even that it ends."""
        if self.networks is None:
            raise NoNetworks(f"nodes share this machine's network: {self.shared_network}")
        network_links.cut(self.networks.links[address])
        self.cluster.remove_node(self.running.pop(address), allow_graceful=False)

    def serve(self, requests: socket.socket) -> None:
        """Do what is requested until standard input ends."""
        while True:
            ready, _, _ = select.select([sys.stdin, requests], [], [])
            if sys.stdin in ready:
                return
            connection, _ = requests.accept()
            with connection, connection.makefile("rw") as lines:
                print(json.dumps(self.answer(json.loads(lines.readline()))), file=lines)

    def answer(self, request: Mapping[str, str]) -> dict[str, str]:
        """Do one request, and return the answer to it."""
        try:
            if "end" in request:
                self.end(request["end"])
            else:
                self.start(request["start"])
        except Exception as error:  # the caller reports it, whatever it is
            return {"error": f"{type(error).__name__}: {error}"}
        return {}


def main() -> int:
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_DISABLE_IMPORT_WARNING="1",
        # Ray would kill an agent where the tasks, which are not Ray's, need most of the memory.
        RAY_memory_monitor_refresh_ms="0",
        # Ray would need a minute to notice that a node has lost its power.
        RAY_health_check_period_ms="1000",
        RAY_health_check_timeout_ms="5000",
        RAY_health_check_failure_threshold="3",
    )
    # Ray and its processes print to standard output, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Files of Ray and of the agents, which Ray kills when pytest is killed.
    os.environ["TMPDIR"] = directory = tempfile.mkdtemp(prefix="tfdc-ray-", dir=BASE)
    try:
        nodes = Nodes.start_all(*map(int, sys.argv[1:]))
        requests = socket.socket(socket.AF_UNIX)
        requests.bind(str(Path(directory) / "requests"))
        requests.listen()
        answer = {
            "address": nodes.cluster.address,
            "shared_network": nodes.shared_network,
            "requests": requests.getsockname(),
        }
        print(json.dumps(answer), file=answers, flush=True)
        nodes.serve(requests)
        nodes.cluster.shutdown()
    except Exception as error:  # the caller reports it, whatever it is
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
