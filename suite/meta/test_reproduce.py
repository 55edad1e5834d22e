"""The command that a report prints for a test selects exactly that test."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suite.harness.session import setup
from suite.meta import listed as plugin
from suite.meta.sessions import listed

# What `pytest suite/` runs with everything taken in, and a part of it with what narrows cases:
# tests that take the first backend or Keras flavor take the first of those that are asked for.
WHOLE = ("suite/", "--ignore=suite/meta", "--fault-matrix", "--full", "--long")
NARROWED = ("suite/conformance/test_placement.py", "--keras", "keras3", "--backend", "nccl")


@pytest.mark.parametrize("arguments", [WHOLE, NARROWED], ids=["whole", "narrowed"])
def test_reproduce_line_selects_exactly_its_test(plugin_stage: Path, arguments: tuple[str, ...]):
    before = sorted(setup.RUNS.glob("*"))
    found = listed(plugin_stage, "all", [*arguments, "--run-dir", str(plugin_stage / "nowhere")])
    # All tests with the same options are named to one session: collecting takes a second. Those of
    # benchmarks by themselves: only then are they a benchmark run.
    groups: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for test, line in found:
        program, named, *rest = shlex.split(line)
        assert (program, named) == ("pytest", test)
        assert rest[0] == "--seed"
        assert rest[2:4] == ["--data", plugin.DATA]
        benchmark = test.startswith("suite/benchmarks/")
        groups.setdefault((benchmark, tuple(rest[4:])), []).append(test)
    if arguments is WHOLE:
        options = {options for _, options in groups}
        assert options == {(), ("--fault-matrix",), ("--full",), ("--long",)}
        assert len(groups[False, ("--fault-matrix",)]) > 100
    with ThreadPoolExecutor(2) as pool:
        selected = pool.map(
            lambda row: listed(plugin_stage, f"group-{row[0]}", [*row[1][1], *row[1][0][1]]),
            enumerate(groups.items()),
        )
        for tests, again in zip(groups.values(), selected, strict=True):
            assert sorted(test for test, _ in again) == sorted(tests)
    assert sorted(setup.RUNS.glob("*")) == before  # listing tests makes no run directory
