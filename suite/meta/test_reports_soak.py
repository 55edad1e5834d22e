"""Tests that several runs count as one soak only without flakes, leaks and eased options."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.history import soak

GREEN: dict[str, Any] = {
    "run_id": "run",
    "command": "pytest suite/",
    "start": "2026-01-02T03:04:05Z",
    "end": "2026-01-02T03:06:05Z",
    "seed": 0,
    "versions": {"tensorflow": "2.21.0"},
    "machine": {},
    "network": {},
    "data": {"sha256": "a"},
    "git": {"commit": "c", "dirty": False},
    "spawn": "fork",
    "counts": {
        "passed": 9,
        "failed": 0,
        "known_deviation": 1,
        "unexpected_pass": 0,
        "unsupported": 1,
        "harness_error": 0,
    },
    "deadline_scale": 1.0,
    "leaks": [],
    "exit_code": 0,
}


def runs(**of_the_last: Any) -> list[dict[str, Any]]:
    """Return three runs, the last one with these changes."""
    made = [{**copy.deepcopy(GREEN), "run_id": f"run-{i}", "seed": i} for i in range(3)]
    made[-1].update(of_the_last)
    return made


def test_soak_summarizes_green_runs():
    assert soak.problems(runs()) == []
    text = soak.render(runs())
    assert "3 runs on 1 environment in 6 min: no flake, no leak" in text
    assert all(f"run-{i}" in text for i in range(3))


VOID = [
    ({"exit_code": 1}, "run-2: exit code 1"),
    ({"counts": {**GREEN["counts"], "failed": 1}}, "run-2: exit code 0, 1 failed"),
    ({"counts": {**GREEN["counts"], "passed": 8}}, "2 different counts"),
    ({"counts": {**GREEN["counts"], "passed": 8, "unsupported": 2}}, "2 different counts"),
    ({"leaks": ["process 7"]}, "run-2: left behind process 7"),
    ({"deadline_scale": 2.0}, "run-2: deadlines times 2"),
    ({"seed": 0}, "seed 0 came 2 times"),
    ({"git": {"commit": "d", "dirty": False}}, "2 different git"),
    ({"data": {"sha256": "b"}}, "2 different data"),
]


@pytest.mark.parametrize(("change", "problem"), VOID)
def test_soak_is_void_for_any_problem(change, problem):
    made = runs(**change)
    assert [p for p in soak.problems(made) if problem in p]
    assert "void" in soak.render(made)


OTHER = {"tensorflow": "2.15.1", "keras": {"keras2": "2.15.0"}}


def test_a_row_that_may_pass_may_do_so_in_one_run_only():
    counts = {**GREEN["counts"], "passed": 8, "known_deviation": 2}
    assert soak.problems(runs(counts=counts)) == []


def test_runs_of_other_versions_have_counts_of_their_own():
    counts = {**GREEN["counts"], "unsupported": 4}
    made = runs(counts=counts, versions=OTHER)
    assert soak.problems(made) == []
    assert "3 runs on 2 environments in 6 min: no flake" in soak.render(made)
    made.append({**made[-1], "run_id": "run-3", "seed": 3, "counts": GREEN["counts"]})
    assert soak.problems(made) == ["2 different counts on TensorFlow 2.15.1 keras2 2.15.0"]


def write(directory: Path, made: list[dict[str, Any]]) -> list[str]:
    for info in made:
        (directory / f"{info['run_id']}.json").write_text(json.dumps(info))
    return [str(path) for path in sorted(directory.iterdir())]


def test_soak_command_exits_with_0_or_1(tmp_path, capsys):
    assert command.main(["soak", *write(tmp_path, runs())]) == 0
    assert command.main(["soak", *write(tmp_path, runs(exit_code=1))]) == 1
    assert "void, 1 problem" in capsys.readouterr().out


def test_soak_rejects_what_is_no_run(tmp_path, capsys):
    assert command.main(["soak", str(tmp_path)]) == 2
    assert "neither a run.json nor a directory" in capsys.readouterr().err
