"""Tests of `python -m suite new`: what it writes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suite.__main__ import main
from suite.harness.tables import programs
from suite.new_trainer import TRAINERS


@pytest.mark.parametrize(("approach", "fit"), TRAINERS)
def test_new_trainer_is_a_program_that_the_suite_can_describe(
    tmp_path: Path, approach: str, fit: bool
):
    path, reference = tmp_path / "my_train.py", TRAINERS[approach, fit].name
    assert main(["new", str(path), "--approach", approach, *["--fit"] * fit]) == 0
    names = ["my_train.py", "my_train.toml", *["training_reports.py"] * (not fit)]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    row = programs.read(tmp_path / "my_train.toml").row
    assert (row.like, row.level) == (reference, "declared")
    assert {"epochs", "steps-per-epoch", "model-dir", "seed"} <= set(row.flags)
    compile(path.read_text(), str(path), "exec")
    assert f"{reference}.py" not in path.read_text()


def test_file_that_cannot_be_written_is_one_line_and_leaves_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "train.py"
    path.with_suffix(".toml").symlink_to("missing/train.toml")
    assert main(["new", str(path), "--approach", "single", "--fit"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["train.toml"]


def test_approach_without_a_loop_needs_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["new", str(tmp_path / "train.py"), "--approach", "single"]) == 2
    assert "add --fit" in capsys.readouterr().err


def test_second_trainer_shares_the_module_of_reports(tmp_path: Path):
    for name in ("one.py", "other.py"):
        assert main(["new", str(tmp_path / name), "--approach", "mirrored"]) == 0
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.py", "exists already"),
        ("train", "the name of a Python file"),
        ("missing/train.py", "there is no directory"),
    ],
)
def test_bad_path_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
):
    (tmp_path / "train.toml").write_text("mine")
    assert main(["new", str(tmp_path / name), "--approach", "mwms"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


def test_unknown_approach_is_refused(tmp_path: Path):
    command = [sys.executable, "-m", "suite", "new", str(tmp_path / "t.py"), "--approach", "x"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "invalid choice: 'x'" in done.stderr
