"""Connect the hosts of one cluster by a bridge, and set the state of their links on request.

virtual_hosts.py runs it with the pid of the cluster's init process and it enters that process's
user and network namespace, in which it has the needed rights whatever its user is outside. A host's
link is a veth pair, and the bridge's end of it is a port. Requests and answers are JSON lines; the
program exits when its standard input ends. Without a pid it only probes whether links can get delay
and loss here, and exits 0 if so.
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
# Settings of tc-netem(8) for each direction of a link: another continent, or a bad cable.
DELAY = {"delay": 10_000, "limit": 100_000}  # microseconds, packets
LOSS = {"loss": 1.0, "limit": 100_000}  # percent, packets
# Error codes of a kernel that was built without a kind of queue.
NOT_BUILT_IN = (errno.ENOENT, errno.EOPNOTSUPP)


class NotBuiltIn(Exception):
    """This kernel lacks the queue for a state of a link."""


def index_of(ip: IPRoute, name: str) -> int:
    """Return the kernel's index of an interface."""
    (index,) = ip.link_lookup(ifname=name)
    return index


def add_bridge(ip: IPRoute) -> None:
    """Create the bridge that joins links, and set it up."""
    ip.link("add", ifname=BRIDGE, kind="bridge")
    ip.link("set", index=index_of(ip, BRIDGE), state="up")


class Link:
    """One host's link with both of its ends: a port of the bridge, and an interface `name`."""

    def __init__(
        self, ip: IPRoute, number: int, namespace: str, address: str, name: str = "eth0"
    ) -> None:
        port = f"port{number}"
        ip.link("add", ifname=port, kind="veth", peer={"ifname": name, "net_ns_fd": namespace})
        self.port = Ends(ip, port)
        bridge = index_of(ip, BRIDGE)
        ip.link("set", index=self.port.index, master=bridge, state="up")
        self.host = Ends(IPRoute(netns=namespace), name)
        self.host.ip.addr("add", index=self.host.index, address=address, prefixlen=PREFIX)
        self.host.ip.link("set", index=self.host.index, state="up")


class Ends:
    """One end of a link; its outgoing packets can be dropped, delayed or throttled."""

    def __init__(self, ip: IPRoute, name: str) -> None:
        self.ip = ip
        self.index = index_of(ip, name)
        self.impaired = False

    def set_state(self, state: str) -> None:
        self.ip.link("set", index=self.index, state=state)

    def heal(self) -> None:
        if self.impaired:
            self.ip.tc("del", index=self.index, parent=TC_H_ROOT)
            self.impaired = False

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
        self.impaired = True


def whole(link: Link) -> None:
    for end in (link.port, link.host):
        end.heal()
    link.port.set_state("up")


def cut(link: Link) -> None:
    """Unplug the cable: both ends detect the loss of the carrier."""
    link.port.set_state("down")


def drop(link: Link) -> None:
    """Drop all packets in both directions, without an error at either end."""
    link.port.drop()
    link.host.drop()


def deaf(link: Link) -> None:
    """Drop all packets to the host; packets from the host arrive."""
    link.port.drop()


def mute(link: Link) -> None:
    """Drop all packets from the host; packets to the host arrive."""
    link.host.drop()


def delay(link: Link) -> None:
    """Delay all packets in both directions."""
    for end in (link.port, link.host):
        end.impair(**DELAY)


def loss(link: Link) -> None:
    """Drop some packets in both directions."""
    for end in (link.port, link.host):
        end.impair(**LOSS)


STATES: dict[str, Callable[[Link], None]] = {
    state.__name__: state for state in (whole, cut, drop, deaf, mute, delay, loss)
}


def throttle(link: Link, rate: Mapping[str, float]) -> None:
    """Limit both directions to `rate` (fields of core/link_rates.py)."""
    for end in (link.port, link.host):
        end.slow_down(rate)


def try_netem() -> int:
    """Return 0 if the kernel has the queue for delay and loss; probe it in own namespaces."""
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
                add_bridge(ip)
            if request["op"] == "join":
                number, namespace = len(links) + 1, f"/proc/{request['pid']}/ns/net"
                links[request["task"]] = Link(ip, number, namespace, request["address"])
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
