"""Fork pytest sessions from a process that has imported what they need.

The imports are the largest part of a short session. A forked session has its own process, working
directory, environment and output, as a new one has.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock

SHARED = (
    "suite.harness.plugin",
    "suite.harness.pytest_plugin.parametrization",
    "suite.harness.scenarios.crashes",
    "reports.rundir.writer",
    "reports.render.html",
    "reports.render.markdown",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pytest_benchmark.plugin",
    "xdist.plugin",
)


class Forker:
    """Run sessions in forks of one process that has imported `modules`, then SHARED."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        self.lock = Lock()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "suite.meta.forked", *modules, *SHARED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(env),
        )

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        output: Path,
        limit_s: int,
    ) -> subprocess.CompletedProcess[str]:
        """Run pytest with these arguments. A session past its time limit is ended by SIGALRM."""
        streams = [f"{output}.stdout", f"{output}.stderr"]
        request = [list(arguments), str(cwd), dict(env), streams, limit_s]
        assert self.process.stdin
        assert self.process.stdout
        with self.lock:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            code = int(self.process.stdout.readline())
        texts = [Path(path).read_text() for path in streams]
        return subprocess.CompletedProcess(list(arguments), code, *texts)

    def stop(self) -> None:
        self.process.communicate()  # closes its input, at which it ends


def preload(modules: Sequence[str]) -> None:
    """Import the modules. Exempt their objects from the collections of forked sessions."""
    for module in modules:
        import_module(module)
    environment = import_module("reports.render.html")._environment()
    for name in environment.list_templates():
        environment.get_template(name)  # compiled once
    gc.collect()
    gc.freeze()


def run_session(
    arguments: list[str], cwd: str, env: dict[str, str], streams: list[str], limit_s: int
) -> int:
    """Run pytest in this process, which was forked for it."""
    signal.alarm(limit_s)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    import pytest

    return int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments]))


def main(modules: Sequence[str]) -> None:
    preload(modules)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            sys.exit(run_session(*json.loads(line)))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
