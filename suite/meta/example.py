"""Run the suite on the worked example of CONTRIBUTING.md, in a copy of the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from suite.harness.core.paths import ROOT
from suite.meta.sessions import HANGS_S, Done, environment

NAME, IDLE = "softmax_regression", "idle_regression"
TABLE = "TRAINERS: Tuple[Trainer, ...] = (\n"
UPDATE = "weights -= args.learning_rate"
COPIED = ("conftest.py", "docs", "pyproject.toml", "reference_trainers", "reports", "suite")


def blocks() -> list[str]:
    """Return the Python blocks of CONTRIBUTING.md in order: the trainer's file, then its row."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)


def add_trainer(project: Path, name: str, program: str, row: str) -> None:
    """Write the trainer's file, and its row at the start of the table."""
    (project / "reference_trainers" / f"{name}.py").write_text(program.replace(NAME, name))
    table = project / "reference_trainers" / "__init__.py"
    text = table.read_text()
    assert text.count(TABLE) == 1
    table.write_text(text.replace(TABLE, f"{TABLE}{row.rstrip().replace(NAME, name)},\n"))


def examined(stage: Path) -> Done:
    """Run the suite on the example, and on a copy of it that makes no weight update.

    The timing tests are left out. The data are scikit-learn's digits.
    """
    program, row, *_ = blocks()
    project = stage / "example"
    project.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "runs")
            shutil.copytree(ROOT / name, project / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, project / name)
    assert program.count(UPDATE) == 1
    add_trainer(project, NAME, program, row)
    add_trainer(project, IDLE, program.replace(UPDATE, f"weights -= 0 * {UPDATE.split()[-1]}"), row)
    asked = ["suite/conformance", "suite/faults", "suite/benchmarks/test_documents.py"]
    asked += ["--trainer", NAME, "--trainer", IDLE]
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


SESSIONS: Mapping[str, Callable[[Path], Done]] = {"example": examined}
