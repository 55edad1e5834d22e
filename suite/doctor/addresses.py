"""Check the addresses of a cluster: their form, this task's own port, and the names of hosts."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

import psutil

from suite.doctor.findings import PROBLEM, WARNING, Finding

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
LARGEST_PORT = 65_535
RESOLVE_S = 3.0  # for all names together
CONNECT_S = 2.0


@dataclass(frozen=True)
class Address:
    """An address of a task, split as TensorFlow does: at the last colon."""

    task: str
    text: str

    @property
    def host(self) -> str:
        return self.text.rpartition(":")[0]

    @property
    def port(self) -> int | None:
        """Return the port; None if it is not a number."""
        text = self.text.rpartition(":")[2] if ":" in self.text else ""
        return int(text) if text.isascii() and text.isdecimal() else None

    @property
    def bound_port(self) -> int:
        """Return the port that TensorFlow binds: it drops the higher bits of a larger number."""
        return (self.port or 0) % (LARGEST_PORT + 1)

    @property
    def is_loopback(self) -> bool:
        return self.host.lower() in LOOPBACK

    @property
    def place(self) -> tuple[str, int]:
        """Return host and port with one name for all loopback hosts, to find duplicates."""
        return ("localhost" if self.is_loopback else self.host.lower()), self.bound_port


def listed(cluster: Mapping[str, Mapping[int, str]]) -> list[Address]:
    """Return the addresses of all tasks of a cluster."""
    return [
        Address(f"{job}/{index}", text)
        for job, tasks in cluster.items()
        for index, text in tasks.items()
    ]


def form_findings(addresses: Iterable[Address]) -> list[Finding]:
    """Return what is wrong with the form of the addresses, and those that two tasks share."""
    addresses = list(addresses)
    found = [finding for each in addresses for finding in _form(each, len(addresses) == 1)]
    ordered = sorted(addresses, key=lambda each: each.place)
    for _, group in groupby(ordered, key=lambda each: each.place):
        same = list(group)
        if len(same) > 1 and same[0].port:
            tasks = " and ".join(each.task for each in same)
            text = f"{tasks} have the same address, {same[0].text}: only one of them can start"
            found.append(Finding(PROBLEM, text, "give each task a port of its own"))
    local = [each for each in addresses if each.is_loopback]
    if local and len(local) < len(addresses):
        text = (
            f"the address of {local[0].task} is {local[0].text}, which on the machines of the "
            "other tasks means those machines"
        )
        hint = "give a name or an address that every machine can reach"
        found.append(Finding(WARNING, text, hint))
    return found


def _form(address: Address, only: bool) -> list[Finding]:
    """Return what is wrong with one address; `only`: the cluster has no other task."""
    shown = f"the address of {address.task}, {address.text!r},"
    right = "write host:port, as in host1:2222"
    if any(letter.isspace() for letter in address.text):
        return [Finding(PROBLEM, f"{shown} contains white space: no connection is made", right)]
    if address.port is None:
        return [Finding(PROBLEM, f"{shown} has no port: TensorFlow cannot parse it", right)]
    if "/" in address.host:
        text = f"{shown} has a scheme or a path: TensorFlow cannot parse it"
        return [Finding(PROBLEM, text, right)]
    if not address.host and not only:
        return [Finding(PROBLEM, f"{shown} has no host: the tasks wait forever", right)]
    if address.port == 0 and not only:
        text = f"{shown} has port 0: the system chooses a port that no other task learns"
        return [Finding(PROBLEM, text, "choose a port for each task")]
    if address.port > LARGEST_PORT:
        text = f"{shown} has no valid port: TensorFlow uses {address.bound_port} instead"
        return [Finding(WARNING, text, f"ports end at {LARGEST_PORT}")]
    return []


# --- this machine -------------------------------------------------------------------------------


def own_findings(own: Address) -> list[Finding]:
    """Bind this task's port as TensorFlow's server does, and connect to it by its address."""
    port = own.bound_port
    if own.port is None or not port:
        return []
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # Like TensorFlow's server: a port in TIME_WAIT can be taken, one in use cannot.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0", port))
            listener.listen()
        except OSError as error:
            return [_not_bound(own, error)]
        why = _not_reached(own.host.strip("[]"), port, listener)
    if not why:
        return []
    text = f"{own.text}, the address of this task, {own.task}, does not lead to it: {why}"
    hint = "is this the machine of that task? Each machine needs its own `task`"
    return [Finding(PROBLEM, text, hint)]


def _not_bound(own: Address, error: OSError) -> Finding:
    port = own.bound_port
    if error.errno == errno.EADDRINUSE:
        text = f"port {port} of this task, {own.task}, is in use{_owner(port)}"
        hint = "end that process, or give the task another port in TF_CONFIG of all tasks"
        return Finding(PROBLEM, f"{text}: `Could not start gRPC server`", hint)
    hint = "use a port from 1024 on" if error.errno == errno.EACCES else ""
    text = f"port {port} of this task, {own.task}, cannot be bound: {error.strerror}"
    return Finding(PROBLEM, text, hint)


def _owner(port: int) -> str:
    """Return the process that listens on the port, as far as this user may know it."""
    try:
        for each in psutil.net_connections("tcp"):
            listens = each.status == psutil.CONN_LISTEN and each.pid
            if listens and tuple(each.laddr)[1:] == (port,):
                return f" by {psutil.Process(each.pid).name()} (pid {each.pid})"
    except (psutil.Error, OSError):
        pass  # another user's process
    return ""


def _not_reached(host: str, port: int, listener: socket.socket) -> str:
    """Return why a connection to this host does not arrive at the listener; "" if it does."""
    try:
        with socket.create_connection((host, port), CONNECT_S):
            listener.settimeout(CONNECT_S)
            listener.accept()[0].close()
    except TimeoutError:
        return f"no connection within {CONNECT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""


Resolve = Callable[[str], object]


def name_findings(
    addresses: Iterable[Address],
    resolve: Resolve = lambda host: socket.getaddrinfo(host, None),
    within_s: float = RESOLVE_S,
) -> list[Finding]:
    """Resolve the names of all hosts at once; report those that fail or do not answer in time."""
    tasks: dict[str, str] = {}
    for each in addresses:
        if each.host and not any(letter.isspace() or letter == "/" for letter in each.host):
            tasks.setdefault(each.host.strip("[]"), each.task)
    failed: dict[str, str] = {}

    def ask(host: str) -> None:
        try:
            resolve(host)
            failed[host] = ""
        except (OSError, UnicodeError) as error:
            failed[host] = getattr(error, "strerror", None) or str(error)

    # Daemons, since a resolver may block for longer than anyone wants to wait.
    threads = [threading.Thread(target=ask, args=(host,), daemon=True) for host in tasks]
    end_s = time.monotonic() + within_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    hint = (
        "correct the name, or wait until it exists (in Kubernetes: a headless service with "
        "publishNotReadyAddresses); until then all tasks wait"
    )
    found = []
    for host, task in tasks.items():
        why = failed.get(host, f"no answer within {within_s:g} s")
        if why:
            text = f"the host name of {task}, {host}, cannot be resolved: {why}"
            found.append(Finding(PROBLEM, text, hint))
    return found
