"""Tests that the number of scenarios at once fits processors and memory, also in a container."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from suite.harness.session import prefetch

GIB = 2**30


@pytest.mark.parametrize(
    ("processors", "memory_gib", "at_once"),
    [
        (1, 8, 2),
        (2, 8, 3),
        (4, 15.6, 5),
        (8, 32, 9),
        (16, 64, 16),
        (64, 512, 16),
        (2, 3.9, 1),  # a second cluster would not fit
        (16, 16, 8),
        (1, 0.5, 1),
        (0.5, 8, 1),  # half a processor, of a container
        (1.5, 8, 2),
    ],
)
def test_scenarios_at_once_suit_cores_and_memory(processors, memory_gib, at_once):
    assert prefetch.suited(processors, memory_gib) == at_once


def groups(root: Path, files: Mapping[str, str]) -> prefetch.Limits:
    """Return the limits of /job/step with these files below the root of the control groups."""
    (root / "job" / "step").mkdir(parents=True)
    for name, text in files.items():
        (root / name).write_text(text + "\n")
    (root / "own").write_text("4:memory:/v1\n0::/job/step\n")
    return prefetch.cgroup_limits(root / "own", root)


def test_cgroup_limits_are_those_of_all_groups_above(tmp_path: Path):
    found = groups(
        tmp_path,
        {
            "job/step/cpu.max": "max 100000",
            "job/cpu.max": "150000 100000",
            "job/step/memory.max": "max",
            "job/step/memory.current": str(GIB),
            "job/memory.max": str(8 * GIB),
            "job/memory.current": str(5 * GIB),
            "job/memory.stat": f"anon {4 * GIB}\nactive_file {GIB}\ninactive_file {GIB}",
        },
    )
    assert found == prefetch.Limits(processors=[1.5], free_gib=[5.0])


@pytest.mark.parametrize("files", [{}, {"cpu.max": "", "memory.max": "1"}])
def test_cgroup_without_a_limit_is_unlimited(tmp_path: Path, files):
    assert groups(tmp_path, files) == prefetch.Limits([], [])
    assert prefetch.cgroup_limits(tmp_path / "none", tmp_path) == prefetch.Limits([], [])


@pytest.mark.parametrize(
    ("limits", "at_once"),
    [
        (prefetch.Limits([], []), 9),
        (prefetch.Limits([2.0], []), 3),
        (prefetch.Limits([], [8.0, 5.0]), 2),
    ],
)
def test_sensible_takes_the_narrowest_limit(monkeypatch, limits, at_once):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=32 * GIB))
    monkeypatch.setattr(prefetch, "cgroup_limits", lambda: limits)
    assert prefetch.sensible() == at_once
