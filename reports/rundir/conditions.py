"""Measurement conditions of a run: settings other than versions and machine that affect numbers.

Runs with different conditions are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AS_USUAL = "keep in paired comparisons, else default"  # --malloc was not given
THREADS, MALLOC, SPAWN = "TensorFlow's threads", "Freed memory (--malloc)", "Tasks started by"


def of(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the conditions by their displayed names.

    `info` is a run.json; conditions that it does not record are omitted.
    """
    machine, data = info["machine"], info.get("data") or {}
    values = {}
    if machine.get("threads") is not None:
        values[THREADS] = _set(machine["threads"]) or "chosen by TensorFlow"
    if "malloc" in machine:
        # Allocator variables of the environment are included: --malloc does not override them.
        malloc = machine["malloc"] or AS_USUAL
        values[MALLOC] = ", ".join(filter(None, (malloc, _set(machine.get("allocator") or {}))))
    if info.get("spawn"):
        values[SPAWN] = info["spawn"]
    if data.get("name"):
        values["Images"] = f"{data['name']}, {data.get('train')} and {data.get('test')}"
    return values


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the differences between the conditions of two run.json, or "" if there are none.

    Example: `Images MNIST, 60000 and 10000 → digits, 1500 and 297`. A condition that one of them
    does not record, as in an older run, is not a difference.
    """
    first, second = of(one), of(other)
    differences = [
        f"{name} {was} → {second[name]}"
        for name, was in first.items()
        if was != second.get(name, was)
    ]
    return "; ".join(differences)


def _set(variables: Mapping[str, Any]) -> str:
    """Return `TF_NUM_INTRAOP_THREADS=1`, etc., for the variables that are set."""
    return ", ".join(f"{name}={value}" for name, value in variables.items() if value)
