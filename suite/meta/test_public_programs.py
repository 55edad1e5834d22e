"""Tests of the catalog of public programs: a digest holds what is fetched, and rows hold runs."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from reports.rundir.frame import BadInput, RunFrames
from suite.campaigns import __main__ as command
from suite.campaigns import public_programs
from suite.harness.tables.toml_schema import read_toml
from suite.meta import made_up_pair

ROW = next(row for row in public_programs.PROGRAMS if row.commit and not row.starts)
TEXT = b"import tensorflow as tf\n"


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(("git", *identity, *arguments), capture_output=True, check=True)
    return done.stdout.decode().strip()


def checkout(directory: Path, path: str, text: bytes) -> public_programs.Program:
    """Make a repository with one file; return the row of a program in it."""
    repository = directory / ROW.repository
    (repository / path).parent.mkdir(parents=True)
    (repository / path).write_bytes(text)
    git("init", "--quiet", str(repository))
    git("-C", str(repository), "add", ".")
    git("-C", str(repository), "commit", "--quiet", "--message=one")
    commit = git("-C", str(repository), "rev-parse", "HEAD")
    digest = hashlib.sha256(text).hexdigest()[:16]
    return replace(ROW, files=(path,), commit=commit, digest=digest)


@pytest.mark.parametrize("row", public_programs.PROGRAMS, ids=lambda row: row.name)
def test_program_is_pinned_and_described_at_each_level(row: public_programs.Program):
    assert len(row.commit) == 40 or "==" in row.release
    assert len(row.digest) == 16
    levels = [path.stem[-1] for path in row.descriptions]
    assert levels[:2] == ["0", "1"]
    for path in row.descriptions:
        described = read_toml(path)
        assert described.get("observe", True) == (path.stem[-1] != "0")
        assert ("{" in str(described.get("args"))) == (path.stem[-1] == "2")


def test_program_is_placed_with_its_descriptions(tmp_path: Path):
    row = checkout(tmp_path, "examples/train.py", TEXT)
    files = public_programs.place(row, tmp_path / "placed", tmp_path)
    assert (tmp_path / "placed" / "train.py").read_bytes() == TEXT
    assert [path.name for path in files] == [path.name for path in row.descriptions]
    assert all(path.is_file() for path in files)
    other = replace(row, digest="0" * 16)
    with pytest.raises(BadInput, match="this is another program"):
        public_programs.place(other, tmp_path / "other", tmp_path)


def test_cells_of_a_notebook_are_written(tmp_path: Path):
    cells = [
        ["# text"],
        ["%%writefile main.py\n", "import a\n", "print(a)"],
        ["%%writefile a.py\n"],
    ]
    text = json.dumps({"cells": [{"source": source} for source in cells]}).encode()
    row = checkout(tmp_path, "one.ipynb", text)
    public_programs.place(row, tmp_path / "placed", tmp_path)
    assert (tmp_path / "placed" / "main.py").read_text("utf-8") == "import a\nprint(a)\n"
    assert (tmp_path / "placed" / "a.py").is_file()


def run_of(row: public_programs.Program, *failing: str) -> RunFrames:
    """Return a run at level 1 with one test that passed, and these that failed."""
    name = f"{row.name}_1"
    verdicts = [
        {"trainer": name, "test": f"suite/t.py::{test}[{name}]", "verdict": verdict}
        for test, verdict in (("test_one", "passed"), *((test, "failed") for test in failing))
    ]
    info = {
        "programs": [{"name": name, "approach": "mwms"}],
        "not_examined": [{"trainer": name, "test": "t", "reason": "r"}],
    }
    return made_up_pair.run("recorded", verdict_dicts=verdicts, **info)


def test_run_is_held_to_the_rows(monkeypatch: pytest.MonkeyPatch):
    row = replace(ROW, found={"test_saves": "It saves nothing."})
    monkeypatch.setitem(public_programs.BY_NAME, row.name, row)
    agreeing = [run_of(row, "test_saves")]
    assert not public_programs.deviations(agreeing)
    (shown,) = public_programs.table(agreeing).rows
    assert shown.cells[3:] == ("1", "1", "1", "0", "1")
    (found,) = public_programs.findings(agreeing).rows
    assert found.cells == ("It saves nothing.", "test_saves", "1")
    (line,) = public_programs.deviations([run_of(row)])
    assert line.endswith("test_saves does not fail")
    (line,) = public_programs.deviations([run_of(row, "test_saves", "test_other")])
    assert line.endswith("test_other fails")
    with pytest.raises(BadInput, match="no public programs"):
        public_programs.table([made_up_pair.run("recorded")])


def test_unknown_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["run-public", str(tmp_path), "--data", "x.npz", "--only", "nothing"]
    assert command.main(arguments) == command.BAD_INPUT
    assert capsys.readouterr().err.startswith("python -m suite.campaigns: ")
    with pytest.raises(BadInput, match="no public program 'nothing'"):
        public_programs.chosen(["nothing"], "2.15.1")
    assert {row.tensorflow for row in public_programs.chosen([], "2.15.1")} == {"2.15"}
