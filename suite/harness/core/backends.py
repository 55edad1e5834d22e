"""Communication backends: the possible requests, and the backend that TensorFlow chose.

A requested name proves nothing: on CPU all three requests end in the ring over gRPC. TensorFlow
reports its choice only in a verbose log line of its collective parameter resolver, so this module
also has the environment variables that enable that line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# The source file whose verbose lines are enabled: several for each collective operation.
RESOLVER = "collective_param_resolver_local"
# Both are read when TensorFlow is imported; the first has no effect without the second.
LOG_ENVIRONMENT = {
    "TF_CPP_VMODULE": f"{RESOLVER}=1",
    "TF_CPP_MIN_LOG_LEVEL": "0",
}

ASSIGNED = re.compile(rb"AssignCollectiveType\s+(\w+)")


@dataclass(frozen=True)
class Backend:
    """One value of `--backend`: the requested name and the name of TensorFlow's constant."""

    name: str
    constant: str
    needs: str = ""  # the device that the requested backend requires


BACKENDS = (
    Backend("auto", "AUTO"),
    Backend("ring", "RING"),
    Backend("nccl", "NCCL", needs="GPU"),
)
BY_NAME = {row.name: row for row in BACKENDS}


def assigned(log: Path) -> frozenset[str]:
    """Return the names that TensorFlow's resolver logged in a file; cached until it changes."""
    try:
        status = log.stat()
    except FileNotFoundError:
        return frozenset()
    return _assigned(log, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _assigned(log: Path, size: int, mtime_ns: int) -> frozenset[str]:  # noqa: ARG001 - cache key
    with log.open("rb") as lines:
        return frozenset(name.decode() for line in lines for name in ASSIGNED.findall(line))


def actual(assigned: Iterable[str]) -> str:
    """Return the implementation in the tasks' logs: ring, nccl, or none if nothing was reduced.

    If tasks disagree, return all names, joined by `+`, since a single name would be false for some.
    """
    chosen = {name.lower() for name in assigned}
    found = {"nccl" if "nccl" in name else "ring" for name in chosen if "reduce" in name}
    return "+".join(sorted(found)) or "none"


def unmet(backend: str, collective: str, gpus: bool) -> str:
    """Return why the requested backend was not the actual one; "" if it was, or AUTO chose.

    `gpus`: True if each worker had one.
    """
    wanted = BY_NAME.get(backend)
    if wanted is None or backend in ("auto", collective):
        return ""
    lacks = wanted.needs and not gpus
    missing = f"no {wanted.needs} for each worker" if lacks else "TensorFlow chose otherwise"
    return f"{missing}: {backend} was requested, the run was reduced by {collective}"
