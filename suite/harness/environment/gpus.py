"""GPUs: which there are, and which worker gets which."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from suite.harness.core.errors import BadInput

# Lines of `nvidia-smi -L`: "GPU 0: NVIDIA A100 (UUID: GPU-e86cb44c-...)", and indented below it
# "  MIG 3g.20gb Device 0: (UUID: MIG-c7384736-...)".
LISTED_GPU = re.compile(r"^GPU \d+: (.+) \(UUID: (\S+)\)", re.M)


LISTED_MIG = re.compile(r"^\s+MIG .+\(UUID: (\S+)\)", re.M)


def discover_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return UUIDs of the NVIDIA GPUs that CUDA shows to a process of this environment.

    CUDA_VISIBLE_DEVICES is read by CUDA's rules: in the given order, a UUID by any unique prefix,
    and nothing from the first invalid or repeated entry on. MIG instances count where it names
    them. Return () without a driver. Raise BadInput for an index whose GPU cannot be known.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        listed = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()  # a driver that does not answer is no GPU to train on
    # By UUID, in PCI order.
    models = {uuid: model for model, uuid in LISTED_GPU.findall(listed.stdout)}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not models:
        return tuple(models)
    # CUDA's default puts the fastest first, nvidia-smi lists by PCI bus: the same for one model.
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
    """Return the devices that one entry of CUDA_VISIBLE_DEVICES may mean: one if it is valid."""
    if entry.isdecimal():
        return gpus[int(entry) :][:1]
    return [entry] if entry in names else [n for n in names if entry and n.startswith(entry)]


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
