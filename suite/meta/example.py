"""Run the suite on the worked example of CONTRIBUTING.md, in copies of the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from suite.harness.core.paths import ROOT
from suite.meta.sessions import HANGS_S, Done, environment

NAME = "softmax_regression"
TABLE = "TRAINERS: Tuple[Trainer, ...] = (\n"
UPDATE = "weights -= args.learning_rate"
COPIED = ("conftest.py", "docs", "pyproject.toml", "reference_trainers", "reports", "suite")


def blocks() -> list[str]:
    """Return the Python blocks of CONTRIBUTING.md in order: the trainer's file, then its row."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)


def copied(project: Path) -> Path:
    """Copy the project, add the example to the copy and return the path of the example's file."""
    program, row, *_ = blocks()
    project.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "runs")
            shutil.copytree(ROOT / name, project / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, project / name)
    trainer = project / "reference_trainers" / f"{NAME}.py"
    trainer.write_text(program)
    table = project / "reference_trainers" / "__init__.py"
    text = table.read_text()
    assert text.count(TABLE) == 1
    table.write_text(text.replace(TABLE, TABLE + row.rstrip() + ",\n"))
    return trainer


def learns(stage: Path) -> Done:
    """Run the suite on the unchanged example."""
    copied(stage / "example")
    return examined(stage, "example")


def learns_nothing(stage: Path) -> Done:
    """Run the suite on the example with its weight updates disabled."""
    trainer = copied(stage / "idle-example")
    text = trainer.read_text()
    assert text.count(UPDATE) == 1
    trainer.write_text(text.replace(UPDATE, f"weights -= 0 * {UPDATE.split()[-1]}"))
    return examined(stage, "idle-example")


SESSIONS: Mapping[str, Callable[[Path], Done]] = {
    "example": learns,
    "idle example": learns_nothing,
}


def examined(stage: Path, name: str) -> Done:
    """Run the suite without its timing tests on the example's trainer, on scikit-learn's digits."""
    project = stage / name
    asked = ["suite/conformance", "suite/faults", "suite/benchmarks/test_documents.py"]
    asked += ["--trainer", NAME]
    asked += ["--run-dir", "run", "--seed", "7", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *asked],
        env=environment(stage, project),
        cwd=project,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
