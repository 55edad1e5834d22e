"""Find leftovers of a session: processes (and so namespaces) and socket directories."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

from suite.harness.cluster.zygote_client import SESSION_VARIABLE


def processes(session: str) -> list[str]:
    """Return one line for each live process that has the session's variable."""
    found = []
    for process in psutil.process_iter():
        try:
            carried = process.environ().get(SESSION_VARIABLE)
            if carried != session:
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            namespace = Path(f"/proc/{process.pid}/ns/net").readlink()
            found.append(f"process {process.pid} in {namespace}: {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, PermissionError):
            continue  # it has ended, or belongs to another user
    return found


def directories(started: Iterable[Path]) -> list[str]:
    """Return the socket directories that remain after their zygote."""
    return [f"directory {path}" for path in started if path.exists()]
