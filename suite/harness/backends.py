"""Communication backends: what can be asked for, and what TensorFlow really chose.

A requested name proves nothing: on CPU all three requests end in the ring over gRPC. TensorFlow
says what it chose only in a verbose log line of its collective parameter resolver, so the
environment that makes it speak is part of this module.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Both are read when TensorFlow is imported; the first is silent without the second.
LOG_ENVIRONMENT = {
    "TF_CPP_VMODULE": "collective_param_resolver_local=1",
    "TF_CPP_MIN_LOG_LEVEL": "0",
}

ASSIGNED = re.compile(r"AssignCollectiveType\s+(\w+)")


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


def actual(logs: Iterable[str]) -> str:
    """The implementation that the tasks' logs name: ring, nccl, or none when nothing was reduced.

    Tasks that disagree give all names, joined by `+`, rather than one that is true of some.
    """
    chosen = {name.lower() for text in logs for name in ASSIGNED.findall(text)}
    found = {"nccl" if "nccl" in name else "ring" for name in chosen if "reduce" in name}
    return "+".join(sorted(found)) or "none"


def discover_gpus(visible: str | None = None) -> tuple[str, ...]:
    """UUIDs of this machine's NVIDIA GPUs, as nvidia-smi lists them; () without a driver.

    `visible` is an inherited CUDA_VISIBLE_DEVICES, which limits what may be used (indices, UUIDs,
    or "-1" for none).
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()  # a driver that does not answer is no GPU to train on
    rows = [[cell.strip() for cell in line.split(",")] for line in listed.stdout.splitlines()]
    gpus = {cells[0]: cells[1] for cells in rows if len(cells) == 2}
    if visible is None:
        return tuple(gpus.values())
    wanted = [name.strip() for name in visible.split(",")]
    return tuple(uuid for index, uuid in gpus.items() if index in wanted or uuid in wanted)


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


def enough(gpus: Sequence[str], workers: int, each: int = 1) -> bool:
    """Whether so many workers can have `each` of them for themselves."""
    return len(gpus) >= each * workers


def assign_gpus(gpus: Sequence[str], workers: Sequence[str], each: int = 1) -> Mapping[str, str]:
    """CUDA_VISIBLE_DEVICES of each worker: `each` of them; "-1" (none) for all when too few.

    GPUs of its own keep NCCL's rule that no two ranks share a device; mixing workers with and
    without would let AUTO choose differently on each of them.
    """
    if not enough(gpus, len(workers), each):
        return dict.fromkeys(workers, "-1")
    return {w: ",".join(gpus[i * each : (i + 1) * each]) for i, w in enumerate(workers)}
