"""Joins the hosts of one cluster by a bridge and does to their links what it is told.

Run by hosts.py with the pid of the cluster's keeper, whose user and network namespace it enters:
there it may do all of this, whoever it is outside. A host's link is a veth pair; the bridge's end
of it is a port. Requests and answers are JSON lines; it ends when its standard input does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Run by path: this directory is first on sys.path.
import isolation
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

BRIDGE = "bridge"
PREFIX = 24
# A link as over a bad wide-area network: a token bucket, see tc-tbf(8).
NARROW = {"rate": "20mbit", "burst": 32 * 1024, "limit": 256 * 1024}  # the last two in bytes


def index_of(ip: IPRoute, name: str) -> int:
    """The number by which the kernel knows an interface."""
    (index,) = ip.link_lookup(ifname=name)
    return index


class Link:
    """One host's link, from both of its ends."""

    def __init__(self, ip: IPRoute, number: int, pid: int, address: str) -> None:
        name, namespace = f"port{number}", f"/proc/{pid}/ns/net"
        ip.link("add", ifname=name, kind="veth", peer={"ifname": "eth0", "net_ns_pid": pid})
        self.port = Ends(ip, name)
        bridge = index_of(ip, BRIDGE)
        ip.link("set", index=self.port.index, master=bridge, state="up")
        self.host = Ends(IPRoute(netns=namespace), "eth0")
        self.host.ip.addr("add", index=self.host.index, address=address, prefixlen=PREFIX)
        self.host.ip.link("set", index=self.host.index, state="up")


class Ends:
    """One end: what is sent out of it can be dropped or held up."""

    def __init__(self, ip: IPRoute, name: str) -> None:
        self.ip = ip
        self.index = index_of(ip, name)
        self.hurt = False

    def set_state(self, state: str) -> None:
        self.ip.link("set", index=self.index, state=state)

    def heal(self) -> None:
        if self.hurt:
            self.ip.tc("del", index=self.index, parent=TC_H_ROOT)
            self.hurt = False

    def drop(self) -> None:
        self._queue("blackhole")

    def narrow(self) -> None:
        self._queue("tbf", **NARROW)

    def _queue(self, kind: str, **options: Any) -> None:
        self.ip.tc("add", kind, index=self.index, handle=0x10000, parent=TC_H_ROOT, **options)
        self.hurt = True


def whole(link: Link) -> None:
    for end in (link.port, link.host):
        end.heal()
    link.port.set_state("up")


def cut(link: Link) -> None:
    """As if the cable were pulled: both ends see that there is no carrier."""
    link.port.set_state("down")


def drop(link: Link) -> None:
    """Nothing arrives in either direction, and nobody is told."""
    link.port.drop()
    link.host.drop()


def deaf(link: Link) -> None:
    """Nothing reaches the host; what it sends arrives."""
    link.port.drop()


def mute(link: Link) -> None:
    """Nothing that the host sends arrives; what is sent to it does."""
    link.host.drop()


def narrow(link: Link) -> None:
    link.port.narrow()
    link.host.narrow()


STATES: dict[str, Callable[[Link], None]] = {
    state.__name__: state for state in (whole, cut, drop, deaf, mute, narrow)
}


def main() -> int:
    namespaces = Path("/proc") / sys.argv[1] / "ns"
    ip: IPRoute | None = None
    links: dict[str, Link] = {}
    for line in sys.stdin:
        request, problem = json.loads(line), None
        try:
            if ip is None:
                isolation.join(namespaces / "user", isolation.CLONE_NEWUSER)
                isolation.join(namespaces / "net", isolation.CLONE_NEWNET)
                ip = IPRoute()
                ip.link("add", ifname=BRIDGE, kind="bridge")
                ip.link("set", index=index_of(ip, BRIDGE), state="up")
            if request["op"] == "join":
                number, pid = len(links) + 1, request["pid"]
                links[request["task"]] = Link(ip, number, pid, request["address"])
            else:
                STATES[request["state"]](links[request["task"]])
        except (OSError, KeyError, NetlinkError) as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps({"error": problem}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
