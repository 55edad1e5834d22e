"""Joins the hosts of one cluster by a bridge and does to their links what it is told.

Run by hosts.py with the pid of the cluster's keeper, whose user and network namespace it enters:
there it may do all of this, whoever it is outside. A host's link is a veth pair; the bridge's end
of it is a port. Requests and answers are JSON lines; it ends when its standard input does. Without
a pid it only tries whether links can be given delay and loss here, and exits 0 if so.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Run by path: this directory is first on sys.path.
import namespaces
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

BRIDGE = "bridge"
PREFIX = 24
# What tc-netem(8) does to each direction of a link: a continent away, or a bad cable.
DELAY = {"delay": 10_000, "limit": 100_000}  # microseconds, packets
LOSS = {"loss": 1.0, "limit": 100_000}  # percent, packets
# How the kernel says that it was built without a kind of queue.
NOT_BUILT_IN = (errno.ENOENT, errno.EOPNOTSUPP)


class NotBuiltIn(Exception):
    """This kernel cannot do that to a link."""


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

    def slow_down(self, rate: Mapping[str, float]) -> None:
        speed = f"{rate['bits_per_s']:.0f}bit"
        self._queue("tbf", rate=speed, burst=rate["burst_bytes"], limit=rate["limit_bytes"])

    def impair(self, **options: float) -> None:
        self._queue("netem", **options)

    def _queue(self, kind: str, **options: Any) -> None:
        self.heal()
        try:
            self.ip.tc("add", kind, index=self.index, handle=0x10000, parent=TC_H_ROOT, **options)
        except NetlinkError as error:
            if error.code in NOT_BUILT_IN:
                raise NotBuiltIn(f"this kernel has no {kind} queue: {error}") from error
            raise
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


def delay(link: Link) -> None:
    """What is sent arrives late, in either direction."""
    for end in (link.port, link.host):
        end.impair(**DELAY)


def loss(link: Link) -> None:
    """Some of what is sent, in either direction, does not arrive."""
    for end in (link.port, link.host):
        end.impair(**LOSS)


STATES: dict[str, Callable[[Link], None]] = {
    state.__name__: state for state in (whole, cut, drop, deaf, mute, delay, loss)
}


def throttle(link: Link, rate: Mapping[str, float]) -> None:
    """No more than `rate` (fields of core/link_rates.py) passes, in either direction."""
    for end in (link.port, link.host):
        end.slow_down(rate)


def try_netem() -> int:
    """In namespaces of this process's own: whether the kernel has the queue of delay and loss."""
    namespaces.enter_namespaces()
    with IPRoute() as ip:
        try:
            Ends(ip, "lo").impair(**DELAY)
        except NotBuiltIn as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def main() -> int:
    handles = Path("/proc") / sys.argv[1] / "ns"
    ip: IPRoute | None = None
    links: dict[str, Link] = {}
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        try:
            if ip is None:
                namespaces.join(handles / "user", namespaces.CLONE_NEWUSER)
                namespaces.join(handles / "net", namespaces.CLONE_NEWNET)
                ip = IPRoute()
                ip.link("add", ifname=BRIDGE, kind="bridge")
                ip.link("set", index=index_of(ip, BRIDGE), state="up")
            if request["op"] == "join":
                number, pid = len(links) + 1, request["pid"]
                links[request["task"]] = Link(ip, number, pid, request["address"])
            elif request["rate"]:
                throttle(links[request["task"]], request["rate"])
            else:
                STATES[request["state"]](links[request["task"]])
        except NotBuiltIn as error:
            answer = {"unsupported": str(error)}
        except (OSError, KeyError, NetlinkError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main() if sys.argv[1:] else try_netem())
