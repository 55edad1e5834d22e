"""Under which conditions a run was measured: what numbers depend on besides versions and machine.

Two runs with different ones are not comparable, whatever else they have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AS_USUAL = "keep in paired comparisons, else default"  # of --malloc, where nobody asked
THREADS, MALLOC, SPAWN = "TensorFlow's threads", "Freed memory (--malloc)", "Tasks started by"


def of(info: Mapping[str, Any]) -> dict[str, str]:
    """By name, as people read it; `info` is a run.json, and what it does not tell is left out."""
    machine, data = info["machine"], info.get("data") or {}
    told = {}
    if machine.get("threads") is not None:
        told[THREADS] = _set(machine["threads"]) or "its own choice"
    if "malloc" in machine:
        # What the environment says of allocators stands beside it: --malloc does not undo that.
        kept = machine["malloc"] or AS_USUAL
        told[MALLOC] = ", ".join(filter(None, (kept, _set(machine.get("allocator") or {}))))
    if info.get("spawn"):
        told[SPAWN] = info["spawn"]
    if data.get("name"):
        told["Images"] = f"{data['name']}, {data.get('train')} and {data.get('test')}"
    return told


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What differs between two run.json: `Images MNIST, 60000 and 10000 → digits, 1500 and 297`.

    Empty where nothing does. What one of them does not tell, as an older run, is no difference.
    """
    first, second = of(one), of(other)
    told = [
        f"{name} {was} → {second[name]}"
        for name, was in first.items()
        if was != second.get(name, was)
    ]
    return "; ".join(told)


def _set(variables: Mapping[str, Any]) -> str:
    """`TF_NUM_INTRAOP_THREADS=1`, and so on, for what was set."""
    return ", ".join(f"{name}={value}" for name, value in variables.items() if value)
