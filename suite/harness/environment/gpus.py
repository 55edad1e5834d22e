"""Discover GPUs and assign them to workers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from suite.harness.core.errors import BadInput

# Lines of `nvidia-smi -L`: "GPU 0: NVIDIA A100 (UUID: GPU-e86cb44c-...)", and indented below it
# "  MIG 3g.20gb Device 0: (UUID: MIG-c7384736-...)".
LISTED_GPU = re.compile(r"^GPU \d+: (.+) \(UUID: (\S+)\)", re.M)


NO_GPU = "-1"  # as CUDA_VISIBLE_DEVICES: hides all GPUs from a task


LISTED_MIG = re.compile(r"^\s+MIG .+\(UUID: (\S+)\)", re.M)


def discover_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return UUIDs of the NVIDIA GPUs that CUDA shows to a process of this environment.

    CUDA_VISIBLE_DEVICES follows CUDA's rules: entries count in the given order, a UUID may be any
    unique prefix, and the first invalid or repeated entry ends the list. MIG instances count if
    they are named. Return () without a driver. Raise BadInput for an index that cannot be mapped to
    a GPU.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        listed = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()  # without an answer from the driver there is no usable GPU
    # By UUID, in PCI order.
    models = {uuid: model for model, uuid in LISTED_GPU.findall(listed.stdout)}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not models:
        return tuple(models)
    # CUDA's default order is fastest first, nvidia-smi's is by PCI bus. With one model they agree.
    unlike = sorted(set(models.values()))
    ordered = len(unlike) == 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    names = [*models, *LISTED_MIG.findall(listed.stdout)]
    found: list[str] = []
    for entry in map(str.strip, visible.split(",")):
        if entry.isdecimal() and not ordered:
            raise BadInput(
                f"CUDA_VISIBLE_DEVICES={visible}: CUDA's numbers of unlike GPUs "
                f"({', '.join(unlike)}) are not known; set CUDA_DEVICE_ORDER=PCI_BUS_ID to give "
                "nvidia-smi's, or give UUIDs (nvidia-smi -L)"
            )
        meant = _meant(entry, list(models), names)
        if len(meant) != 1 or meant[0] in found:
            break
        found += meant
    return tuple(found)


def _meant(entry: str, gpus: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the devices that match an entry of CUDA_VISIBLE_DEVICES: exactly one if valid."""
    if entry.isdecimal():
        return gpus[int(entry) :][:1]
    return [entry] if entry in names else [n for n in names if entry and n.startswith(entry)]


def enough(gpus: Sequence[str], workers: int, each: int = 1) -> bool:
    """Return True if each of that many workers can have `each` GPUs of its own."""
    return len(gpus) >= each * workers


def assign_gpus(gpus: Sequence[str], workers: Sequence[str], each: int = 1) -> Mapping[str, str]:
    """Return CUDA_VISIBLE_DEVICES of each worker: `each` GPUs, or "-1" for all if too few.

    Separate GPUs satisfy NCCL's rule that no two ranks share a device. With GPUs for only some
    workers, AUTO could choose a different backend on each.
    """
    if not enough(gpus, len(workers), each):
        return dict.fromkeys(workers, NO_GPU)
    return {w: ",".join(gpus[i * each : (i + 1) * each]) for i, w in enumerate(workers)}
