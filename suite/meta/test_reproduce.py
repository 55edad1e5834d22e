"""Tests that the reproduce command that a report prints selects exactly its test."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suite.harness.session import run_directory
from suite.meta import listed as plugin
from suite.meta.sessions import listed

# All tests that `pytest suite/` can run, and a part of them with options that narrow cases: tests
# that take the first backend or Keras flavor take the first of those that are asked for.
WHOLE = ("suite/", "--ignore=suite/meta", "--fault-matrix", "--full", "--long")
NARROWING = ("--backend", "nccl", "--keras", "keras3", "--deadline-scale", "2.5")
NARROWED = ("suite/conformance/test_placement.py", *NARROWING)
PAIRS = ("--base", "same", "--budget", "30", "--times", "2", "--slow-down", "5")
PAIRED = ("suite/benchmarks/test_paired.py", "--trainer", "single_process", *PAIRS)
# Arguments of a run -> the options in the reproduce lines of its tests.
OPTIONS: Mapping[tuple[str, ...], set[tuple[str, ...]]] = {
    WHOLE: {(), ("--fault-matrix",), ("--full",), ("--long",)},
    NARROWED: {NARROWING},
    PAIRED: {PAIRS},
}


@pytest.mark.parametrize("arguments", OPTIONS, ids=["whole", "narrowed", "paired"])
def test_reproduce_line_selects_exactly_its_test(plugin_stage: Path, arguments: tuple[str, ...]):
    before = sorted(run_directory.RUNS.glob("*"))
    found = listed(plugin_stage, "all", [*arguments, "--run-dir", str(plugin_stage / "nowhere")])
    # One session selects all tests with the same options, because collecting takes a second. Those
    # of benchmarks have their own: only then are they a benchmark run.
    groups: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for test, line in found:
        program, named, *rest = shlex.split(line)
        assert (program, named) == ("pytest", test)
        assert (rest[:2], rest[2]) == (["--data", plugin.DATA], "--seed")
        benchmark = test.startswith("suite/benchmarks/")
        groups.setdefault((benchmark, tuple(rest[4:])), []).append(test)
    assert {options for _, options in groups} == OPTIONS[arguments]
    if arguments is WHOLE:
        assert len(groups[False, ("--fault-matrix",)]) > 100
    with ThreadPoolExecutor(2) as pool:
        selected = pool.map(
            lambda row: listed(plugin_stage, f"group-{row[0]}", [*row[1][1], *row[1][0][1]]),
            enumerate(groups.items()),
        )
        for tests, again in zip(groups.values(), selected, strict=True):
            assert sorted(test for test, _ in again) == sorted(tests)
    assert sorted(run_directory.RUNS.glob("*")) == before  # listing tests makes no run directory


@pytest.mark.parametrize("name", ["train.py", "described.toml"])
def test_reproduce_line_names_the_program_of_a_user(plugin_stage: Path, name: str):
    directory = plugin_stage / "own"
    directory.mkdir(exist_ok=True)
    (directory / "train.py").write_text("strategy = tf.distribute.MirroredStrategy()\n")
    (directory / "described.toml").write_text('program = "train.py"\nargs = ["{epochs}"]\n')
    given = ["--trainer", str(directory / name)]
    found = listed(plugin_stage, f"own-{name}", ["suite/conformance", *given])
    assert len(found) > 3
    test, line = found[0]
    program, named, *rest = shlex.split(line)
    assert (program, named, rest[:2], rest[2]) == ("pytest", test, given, "--data")
    assert [test for test, _ in listed(plugin_stage, f"own-{name}-again", [test, *rest[:2]])] == [
        test
    ]
