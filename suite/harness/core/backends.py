"""Communication backends: what can be asked for, and what TensorFlow really chose.

A requested name proves nothing: on CPU all three requests end in the ring over gRPC. TensorFlow
says what it chose only in a verbose log line of its collective parameter resolver, so the
environment that makes it speak is part of this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Both are read when TensorFlow is imported; the first is silent without the second.
LOG_ENVIRONMENT = {
    "TF_CPP_VMODULE": "collective_param_resolver_local=1",
    "TF_CPP_MIN_LOG_LEVEL": "0",
}

ASSIGNED = re.compile(rb"AssignCollectiveType\s+(\w+)")


@dataclass(frozen=True)
class Backend:
    """One value of `--backend`: the name asked for and what TensorFlow's constant is called."""

    name: str
    constant: str
    needs: str = ""  # the device without which the request cannot become the actual backend


BACKENDS = (
    Backend("auto", "AUTO"),
    Backend("ring", "RING"),
    Backend("nccl", "NCCL", needs="GPU"),
)
BY_NAME = {row.name: row for row in BACKENDS}


def assigned(log: Path) -> frozenset[str]:
    """Names that TensorFlow's resolver has logged in a file; it is read again after a change."""
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
    """The implementation that the tasks' logs name: ring, nccl, or none when nothing was reduced.

    Tasks that disagree give all names, joined by `+`, rather than one that is true of some.
    """
    chosen = {name.lower() for name in assigned}
    found = {"nccl" if "nccl" in name else "ring" for name in chosen if "reduce" in name}
    return "+".join(sorted(found)) or "none"


def unmet(backend: str, collective: str, gpus: bool) -> str:
    """Why the requested backend was not the actual one; empty when it was, or AUTO chose.

    `gpus`: whether each worker had one.
    """
    wanted = BY_NAME.get(backend)
    if wanted is None or backend in ("auto", collective):
        return ""
    lacks = wanted.needs and not gpus
    missing = f"no {wanted.needs} for each worker" if lacks else "TensorFlow chose otherwise"
    return f"{missing}: {backend} was requested, the run was reduced by {collective}"
