"""Virtual hosts of a cluster: each task has its own link, which can be cut or made slow.

A host is a network namespace that a process of the cluster holds. A helper program
(network_links.py) connects the hosts by veth pairs and a bridge inside the cluster's private
network, and sets the state of each link on request. It exits when its standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from suite.harness.cluster.zygote_client import InitConnection, end_of
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.link_rates import RATES
from suite.harness.core.paths import TASK_SIDE

PROGRAM = TASK_SIDE / "network_links.py"
SUBNET = "10.77.0."
PORT = 2222  # of every task, since each has its own host
WHOLE = "whole"  # a link without a fault; network_links.py defines the other states


def addresses(tasks: Sequence[str]) -> dict[str, str]:
    """Return task -> "10.77.0.N:2222"; raise HarnessError if the subnet is too small."""
    if len(tasks) > 254:
        raise HarnessError(f"{len(tasks)} hosts were wanted, a bridge joins at most 254")
    return {task: f"{SUBNET}{number}:{PORT}" for number, task in enumerate(tasks, 1)}


class Hosts:
    """The hosts of one cluster, one for each task."""

    def __init__(
        self,
        cluster_init: InitConnection,
        addresses: Mapping[str, str],
        deadlines: Deadlines,
        env: Mapping[str, str],
    ) -> None:
        """Create and connect the hosts; raise Unsupported, with the reason, if the kernel refuses.

        `env`: the cluster's environment, with the session's variable.
        """
        self.deadlines = deadlines
        self.process: subprocess.Popen[str] | None = None
        for task in addresses:
            cluster_init.send(op="host", host=task)
        messages: list[dict[str, Any]] = []
        wait_until(
            "hosts",
            lambda: messages.extend(cluster_init.receive()) or len(messages) >= len(addresses),
            deadlines.exit_s,
        )
        self.pids = {message["host"]: message["pid"] for message in messages}
        for message in messages:
            if not message["pid"]:
                raise Unsupported(f"hosts of their own: {message['error']}")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(cluster_init.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            start_new_session=True,  # only pytest gets Ctrl-C
        )
        try:
            for task, address in addresses.items():
                host = address.split(":")[0]
                self._ask(op="join", task=task, pid=self.pids[task], address=host)
        except BaseException:
            self.close()
            raise

    def set(self, task: str, state: str) -> None:
        """Put the task's link into this state; the state is in effect when this returns.

        Raise Unsupported, with the reason, for a state that this kernel was built without.
        """
        rate = RATES.get(state)
        self._ask(op="set", task=task, state=state, rate=rate and asdict(rate))

    def close(self) -> None:
        if self.process:
            for stream in (self.process.stdin, self.process.stdout):
                if stream:
                    with contextlib.suppress(BrokenPipeError):  # buffered request to a dead helper
                        stream.close()
            try:
                self.process.wait(self.deadlines.exit_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _ask(self, **request: Any) -> None:
        assert self.process
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the reason, if any, is on the other pipe
        ready, _, _ = select.select([self.process.stdout], [], [], self.deadlines.exit_s)
        answer = self.process.stdout.readline() if ready else ""
        if not answer:
            problem = end_of(self.process) or f"does not answer to {request}"
            raise HarnessError(f"the network helper of the cluster (network_links.py) {problem}")
        result = json.loads(answer)
        if reason := result.get("unsupported"):
            raise Unsupported(f"link of {request['task']}: {reason}")
        problem = result.get("error")
        if problem and request["op"] == "join":
            raise Unsupported(f"hosts of their own: {problem}")
        if problem:
            raise HarnessError(f"link of {request['task']}: {problem}")
