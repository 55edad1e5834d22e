"""Tests of the catalog of mutants: its rows, and how a mutant is examined and counted."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.harness.core.errors import BadInput
from suite.meta import made_up_pair, made_up_run
from suite.meta.sources import ROOT
from suite.mutants import __main__ as command
from suite.mutants import catalog, running
from suite.mutants.catalog import MACHINERY, TRAINERS, Mutant

ROWS = catalog.load()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_mutant_compiles_and_its_tests_exist(row: Mutant):
    compile(row.source((ROOT / row.file).read_text(encoding="utf-8")), row.file, "exec")
    for test in row.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert path.startswith("suite/meta/") == (row.kind == MACHINERY)


def test_there_are_as_many_mutants_as_promised():
    kinds = [row.kind for row in ROWS]
    assert kinds.count(TRAINERS) >= 60
    assert kinds.count(MACHINERY) >= 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\n', "a: file is missing"),
        ('name = "a"\nfiles = "b"\n', "unknown key 'files'"),
        ("{row}old = ['a', 'b']", "old has 2 texts, new has 1"),
        ("{row}old = ['nowhere']", "'nowhere' occurs 0 times in conftest.py"),
        ("{row}old = ['import']\ntrainer = 'none'", "there is no trainer none"),
    ],
)
def test_bad_row_is_refused_in_one_line(tmp_path: Path, text: str, message: str):
    row = 'name = "a"\nfile = "conftest.py"\nmistake = "m"\nnew = ["x"]\ntests = ["t"]\n'
    path = tmp_path / f"{TRAINERS}.toml"
    text = text.replace("{row}", row).replace("'import'", "'pytest_plugins'")
    path.write_text(f"[[mutant]]\n{text}\n")
    with pytest.raises(BadInput, match=message) as error:
        catalog.load([TRAINERS], tmp_path)
    assert "\n" not in str(error.value)


SUBJECT = "def double(x):\n    return 2 * x\n"
TEST = (
    "from subject import double\n\n\n"
    "def test_one():\n    assert double(1) == 2\n\n\n"
    "def test_other():\n    assert double(0) == 0\n"
)


@pytest.mark.parametrize(
    ("new", "test", "outcome"),
    [
        ("return 3 * x", "test_one", running.FOUND),
        ("return 3 * x", "test_other", running.MISSED),
        ("return x + x", "test_one", running.MISSED),
        ("return 3 * x", "test_nowhere", running.NOT_RUN),
        ("return (", "test_one", running.NOT_RUN),
    ],
)
def test_mutant_is_found_by_its_own_test_only(
    tmp_path: Path, monkeypatch: Any, new: str, test: str, outcome: str
):
    def copied(directory: Path) -> Path:
        copy = directory / "checkout"
        copy.mkdir()
        (copy / "subject.py").write_text(SUBJECT)
        (copy / "test_subject.py").write_text(TEST)
        return copy

    monkeypatch.setattr(running, "copy_checkout", copied)
    row = Mutant("m", "subject.py", "x", ("return 2 * x",), (new,), (f"test_subject.py::{test}",))
    (result,) = running.run([row], tmp_path / "out")
    assert result.outcome == outcome
    assert result.by == ((test,) if outcome == running.FOUND else ())
    assert (tmp_path / "out" / "checkout" / "subject.py").read_text() == SUBJECT


def test_score_counts_mutants_that_are_not_equivalent():
    rows = [replace(ROWS[0], name=str(i)) for i in range(4)]
    outcomes = (running.FOUND, running.MISSED, running.EQUIVALENT, running.NOT_RUN)
    results = [running.Result(row.name, o) for row, o in zip(rows, outcomes, strict=True)]
    assert command.score(rows, results) == (
        "trainers: 1 of 3 found (1 equivalent, 1 missed, 1 not run)"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--only", "nowhere"], "no mutant 'nowhere'"), ([], "exists; name a new directory")],
)
def test_bad_input_ends_with_one_line(tmp_path: Path, capsys: Any, words: list[str], message: str):
    assert command.main([str(tmp_path), *words]) == command.BAD_INPUT
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("version", "expected"), [("2.15.1", True), ("2.21.0", False)])
def test_mutants_of_other_versions_are_left_out(monkeypatch: Any, version: str, expected: bool):
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    rows = [row for row in ROWS if row.trainer == "estimator_multi_worker_mirrored"]
    if expected:
        assert command.for_this_tensorflow(rows) == tuple(rows)
    else:
        with pytest.raises(BadInput, match=r"is for TensorFlow 2\.21\.0"):
            command.for_this_tensorflow(rows)


def test_mutant_of_a_trainer_is_found_by_the_test_of_its_claim(tmp_path: Path, monkeypatch: Any):
    def trained(*_: Any) -> tuple[int, Path]:
        verdict = made_up_run.verdict(made_up_run.MULTI, "convergence", "loss_falls", "failed")
        run = made_up_pair.run("recorded", verdict_dicts=[verdict])
        monkeypatch.setattr(running.frame, "load", lambda _: run)
        return running.FAILED_CODE, tmp_path

    monkeypatch.setattr(running, "_trained", trained)
    for claim, outcome in (("made-up/loss-falls", running.FOUND), ("a/d", running.MISSED)):
        row = replace(ROWS[0], claim=claim, equivalent="")
        assert running._examine(row, tmp_path, tmp_path, ()).outcome == outcome


def test_recorded_results_are_shown_with_their_score(tmp_path: Path, capsys: Any):
    file = tmp_path / "results.jsonl"
    lines = [{"name": row.name, "outcome": running.FOUND, "by": ["test_a"]} for row in ROWS[:3]]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert command.main(["--show", str(file)]) == 0
    assert "trainers: 3 of 3 found" in capsys.readouterr().out
    file.write_text("{}\n")
    assert command.main(["--show", str(file)]) == command.BAD_INPUT
    assert "no results of mutants" in capsys.readouterr().err


def test_clean_tests_run_once_for_each_trainer_and_options(tmp_path: Path, monkeypatch: Any):
    """Each run has a directory of its own, since pytest refuses one that is not empty."""
    monkeypatch.setattr(running, "copy_checkout", lambda directory: directory)
    calls = []

    def passed(*call: Any) -> tuple[int, Path]:
        calls.append(call)
        return running.PASSED_CODE, tmp_path

    monkeypatch.setattr(running, "_pytest", passed)
    usual = replace(ROWS[0], tests=("t.py::test_a",), options=())
    rows = [usual, replace(usual, options=("--long",)), replace(usual, name="other")]
    assert running.clean_failures(rows, tmp_path / "clean") == []
    words = [call[3] for call in calls]
    assert [each.count("t.py::test_a") for each in words] == [1, 1]
    assert ["--long" in each for each in words] == [False, True]
    assert len({each[each.index("--run-dir") + 1] for each in words}) == len(words)
