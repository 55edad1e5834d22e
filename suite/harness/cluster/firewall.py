"""Close leased ports to other users and other machines for the lifetime of a cluster.

TensorFlow's server listens on every interface and has no authentication. One process for each
cluster sets its rules and lives as long as the cluster. The standard input of that process ends
when pytest does, also by SIGKILL, and the rules end with the process: the kernel removes an
nftables table with its owner, and iptables_rules.py removes its own rules. The rules reject each
new connection to the ports unless this user opens it on this machine.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from suite.harness.cluster.zygote_client import SESSION_VARIABLE
from suite.harness.core.errors import HarnessError
from suite.harness.core.paths import TASK_SIDE

NFTABLES, IPTABLES = "nftables", "iptables"  # in order of preference
IPTABLES_RULES = TASK_SIDE / "iptables_rules.py"
SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
ANSWER_S = 20.0
NO_PORT = 0  # for a probe: no program can connect to port 0

# `flags owner`: the kernel (5.12 and later) removes the table when the socket of this nft closes.
# A connection from this machine arrives on lo, also for its other addresses.
TABLE = (
    "table inet {name} {{ flags owner; "
    "chain output {{ type filter hook output priority filter; oifname lo tcp dport {{ {ports} }} "
    "tcp flags & (syn | ack) == syn meta skuid != {uid} reject with tcp reset; }}; "
    "chain input {{ type filter hook input priority filter; iifname != lo tcp dport {{ {ports} }} "
    "tcp flags & (syn | ack) == syn reject with tcp reset; }}; }}\n"
    "list table inet {name}\n"
)
DONE = {NFTABLES: '{"nftables"', IPTABLES: "closed"}  # start of the first line after success


class Firewall:
    """The rules of one cluster; HarnessError, with the tool's reason, if they cannot be set."""

    def __init__(self, tool: str, session: str, ports: Sequence[int]) -> None:
        # A chain's name has at most 28 characters. The port makes it unique.
        self.name = f"tfdc_{re.sub(r'[^0-9A-Za-z]', '_', session)[:16]}_{ports[0]}"
        self.tool = tool
        uid, listed = str(os.geteuid()), [str(port) for port in ports]
        if tool == NFTABLES:
            command = ["nft", "--json", "--interactive"]
            text = TABLE.format(name=self.name, ports=", ".join(listed), uid=uid)
        else:
            command, text = [sys.executable, str(IPTABLES_RULES), self.name, uid, *listed], ""
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": SYSTEM_PATH, SESSION_VARIABLE: session},
                start_new_session=True,  # only pytest gets Ctrl-C
            )
        except OSError as error:
            raise HarnessError(f"{tool}: {error.strerror}") from error
        answer = self._ask(text.encode())
        if not answer.startswith(DONE[tool]):
            self._end()
            raise HarnessError(f"{tool}: {answer or 'no answer'}")

    def close(self) -> None:
        """Remove the rules; raise HarnessError if their process had ended before."""
        ended = self.process.poll()
        self._end()
        if ended is not None:
            raise HarnessError(f"{self.tool} ended by itself ({ended}): the ports were open since")

    def _ask(self, text: bytes) -> str:
        """Send the text and return the first line of the answer."""
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):  # the reason is on the other pipe
            self.process.stdin.write(text)
            self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        return self.process.stdout.readline().decode(errors="replace").strip() if ready else ""

    def _end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def probe(session: str) -> tuple[str, str]:
    """Return the first tool that can set rules here, or "" and the reasons why none can."""
    reasons = []
    for tool in (NFTABLES, IPTABLES):
        try:
            Firewall(tool, session, [NO_PORT]).close()
        except HarnessError as error:
            reasons.append(str(error))
        else:
            return tool, ""
    return "", "; ".join(reasons)
