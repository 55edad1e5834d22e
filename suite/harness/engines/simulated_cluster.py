"""A Ray cluster whose nodes are all on this machine."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import BadInput, HarnessError
from suite.harness.core.paths import TASK_SIDE
from suite.harness.engines import ray_connection

SIMULATED_NODES = 3
START = TASK_SIDE / "ray_nodes.py"


@dataclass(frozen=True)
class SimulatedCluster:
    """A Ray cluster whose nodes are on this machine, with a network each unless it says why not."""

    address: str
    shared_network: str  # why the nodes share the machine's network; "" if they do not
    requests: str  # path of the socket for `request`
    end: Callable[[], None]


def start_nodes(deadlines: Deadlines, gpus: int = 0) -> SimulatedCluster:
    """Start a Ray cluster of SIMULATED_NODES nodes and a head on this machine.

    By default the nodes have no GPUs, because all would have those of this machine. Ray accepts
    any number of `gpus` for each.
    """
    ray_connection.ray()
    process = subprocess.Popen(
        [sys.executable, str(START), str(SIMULATED_NODES), str(gpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # only pytest gets Ctrl-C; it then ends the nodes in order
    )
    given, answers = process.stdin, process.stdout
    assert given is not None
    assert answers is not None

    def end() -> None:
        given.close()
        try:
            process.wait(deadlines.exit_s)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel ends its children, as Ray asked it to
            process.wait()
        answers.close()

    answered, _, _ = select.select([answers], [], [], deadlines.ready_s)
    line = answers.readline() if answered else ""
    answer = json.loads(line) if line else {"error": f"no answer in {deadlines.ready_s:.0f} s"}
    if "error" in answer:
        end()
        raise BadInput(f"--engine ray: cannot start nodes on this machine: {answer['error']}")
    return SimulatedCluster(end=end, **answer)


def request(requests: str, what: str, address: str, within_s: float) -> None:
    """Let the process that runs the nodes `end` or `start` the node at that address."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(within_s)
            connection.connect(requests)
            with connection.makefile("rw") as lines:
                lines.write(json.dumps({what: address}) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise HarnessError(f"the nodes on this machine cannot be reached: {error}") from error
    if "error" in answer:
        raise HarnessError(f"cannot {what} the node {address}: {answer['error']}")
