"""Record which users can reach a leased port before, during and after firewall rules close it.

Run it as root in its own network namespace: closed_ports.py TOOL. It prints one JSON object.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - another user may not be able to import it
import json
import os
import signal
import socket
import subprocess
import sys

from suite.harness.cluster.firewall import NFTABLES, SYSTEM_PATH, Firewall
from suite.harness.core.deadlines import wait_until
from suite.harness.task_side import namespaces

SESSION = "closed-ports"
OTHER_USER = 65534
ADDRESSES = ("127.0.0.1", "::1")
LIST = {
    NFTABLES: [["nft", "list", "ruleset"]],
    "iptables": [["iptables", "-S"], ["ip6tables", "-S"]],
}


def attempts(port: int, user: int = 0) -> list[str]:
    """Return the results of a user's connections to the port, by IPv4 and IPv6."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setuid(user)
        ends = []
        for address in ADDRESSES:
            try:
                socket.create_connection((address, port), timeout=10).close()
                ends.append("connected")
            except OSError as error:
                ends.append(str(error.strerror))
        os.write(write_end, json.dumps(ends).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        return json.load(answer)


def rules(tool: str, session: str = SESSION) -> int:
    """Return how often the firewall's current rules name the session."""
    done = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=with_system_path())
        for command in LIST[tool]
    ]
    return "".join(each.stdout for each in done).count(f"tfdc_{session.replace('-', '_')}_")


def with_system_path() -> dict[str, str]:
    return {**os.environ, "PATH": SYSTEM_PATH}


def holder(tool: str, port: int) -> int:
    """Fork a process that holds the rules as pytest does. Return its pid once the rules are set."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        firewall = Firewall(tool, SESSION, [port])
        os.write(write_end, b"closed")
        firewall.process.wait()
        os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        assert answer.read(6) == "closed"
    return pid


def main(tool: str) -> dict[str, object]:
    namespaces.bring_up("lo")
    seen: dict[str, object] = {}
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]

        def look(when: str) -> None:
            seen[f"{when}: own"] = attempts(port)
            seen[f"{when}: other"] = attempts(port, OTHER_USER)
            seen[f"{when}: rules"] = rules(tool) > 0

        look("before")
        firewall = Firewall(tool, SESSION, [port])
        look("closed")
        firewall.close()
        look("over")
        pid = holder(tool, port)
        look("held")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_until("the rules to go with their process", lambda: not rules(tool), 30)
        look("killed")
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
