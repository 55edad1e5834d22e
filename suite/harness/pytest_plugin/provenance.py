"""Record the provenance of a run: machine, commit, versions, command."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from suite.harness.cluster.launcher import THREADS
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import Settings

SUITE = "tf-distribute-conformance"
PACKAGES = ("pytest", "pytest-xdist", "pytest-benchmark", "pandas", "pyarrow", "scipy", "numpy")


def machine(load_1m: float, settings: Settings) -> dict[str, Any]:
    """Return the machine of the measurements; `load_1m` is the load when the run started.

    Include the requested `settings` (threads of TensorFlow's pools, whether freed memory is kept),
    None where not requested.
    """
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else ""
    return {
        "host": socket.gethostname(),
        "cpu": model or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "processors": sorted(os.sched_getaffinity(0)),
        "threads": {name: settings.threads or os.environ.get(name) for name in THREADS},
        "malloc": settings.malloc,
        "allocator": {name: os.environ[name] for name in sorted(os.environ) if _allocates(name)},
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "load_1m": load_1m,
    }


def _allocates(name: str) -> bool:
    """Return True if an environment variable configures or replaces the memory allocator."""
    return name.startswith("MALLOC_") or name in ("GLIBC_TUNABLES", "LD_PRELOAD")


def git() -> dict[str, Any]:
    """Return the suite's own commit; empty if the suite is not a checkout."""

    def ask(*command: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=False
            )
        except OSError:
            return ""
        return done.stdout.strip()

    return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}


def suite_version(source: Mapping[str, Any]) -> str:
    """Return the version of the suite with the commit of `git`: `0.1.0+0123456789ab.dirty`."""
    try:
        version = metadata.version(SUITE)
    except metadata.PackageNotFoundError:
        version = "0"
    commit = [source["commit"][:12]] if source["commit"] else []
    return "+".join([version, *commit]) + (".dirty" if source["dirty"] else "")


def versions(interpreter: Any, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions of the software under test, of the suite (`git`), and of the tools.

    The software under test is `tensorflow`, `keras` and `python`.
    """
    found = {name: metadata.version(name) for name in PACKAGES}
    return {
        **found,
        "suite": suite_version(source),
        "tensorflow": interpreter.tensorflow,
        "keras": dict(interpreter.flavors),
        "python": interpreter.python_version,
    }


def command_line(arguments: Sequence[str]) -> str:
    return shlex.join(["pytest", *arguments])
