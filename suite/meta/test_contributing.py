"""The worked example of CONTRIBUTING.md: one file and one row, and the suite examines it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from suite.harness.process import ROOT
from suite.meta.sessions import set_stage

NAME = "softmax_regression"
TABLE = "TRAINERS: Tuple[Trainer, ...] = (\n"
COPIED = ("conftest.py", "pyproject.toml", "reference_trainers", "reports", "suite")


def blocks() -> list[str]:
    """The Python of CONTRIBUTING.md, in order: the trainer's file, then its row."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with the example in it."""
    program, row, *_ = blocks()
    project = tmp_path / "project"
    project.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "runs", "evidence")
            shutil.copytree(ROOT / name, project / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, project / name)
    (project / "reference_trainers" / f"{NAME}.py").write_text(program)
    table = project / "reference_trainers" / "__init__.py"
    text = table.read_text()
    assert text.count(TABLE) == 1
    table.write_text(text.replace(TABLE, TABLE + row.rstrip() + ",\n"))
    set_stage(tmp_path)  # a TensorFlow that is only a name
    return project


def examine(project: Path) -> subprocess.CompletedProcess[str]:
    """The suite on the example's trainer and on scikit-learn's digits, less what takes timings."""
    asked = ["suite/conformance", "suite/faults", "--trainer", NAME]
    asked += ["--run-dir", "run", "--seed", "7", "-p", "no:cacheprovider"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    path = os.pathsep.join([str(project), str(project.parent / "site")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", *asked],
        env={**kept, "PYTHONPATH": path, "TFDC_OFFLINE": "1"},
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_one_file_and_one_row_make_a_trainer(copy: Path) -> None:
    done = examine(copy)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    verdicts = pd.read_parquet(copy / "run" / "verdicts.parquet")
    assert set(verdicts["trainer"]) == {NAME}
    assert set(verdicts["verdict"]) == {"passed"}
    folders = {test.split("::")[0].split("/")[-1] for test in verdicts["test"]}
    assert folders >= {"test_accounting.py", "test_convergence.py"}


def test_a_trainer_that_learns_nothing_is_found(copy: Path) -> None:
    program = copy / "reference_trainers" / f"{NAME}.py"
    update = "weights -= args.learning_rate"
    text = program.read_text()
    assert text.count(update) == 1
    program.write_text(text.replace(update, "weights -= 0 * args.learning_rate"))
    done = examine(copy)
    assert done.returncode == 1
    verdicts = pd.read_parquet(copy / "run" / "verdicts.parquet")
    failed = verdicts[verdicts["verdict"] == "failed"]
    assert set(failed["test"].str.split("::").str[1].str.split("[").str[0]) == {
        "test_loss_falls_epoch_by_epoch",
        "test_accuracy_rises_epoch_by_epoch",
        "test_losses_of_steps_fall",
    }
