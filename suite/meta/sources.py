"""Read the project's own source without importing it, for tests of project-wide rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTEST_SIDE = ("conftest.py", "suite/**/*.py", "reports/**/*.py")
# Code that runs in a task, under any interpreter that TensorFlow is installed for.
WORKER_SIDE = (
    "reference_trainers/**/*.py",
    "suite/programs/**/*.py",
    "suite/harness/task_side/tmpfs_disk.py",
    "suite/harness/task_side/private_tmp.py",
    "suite/harness/task_side/cluster_init.py",
    "suite/harness/task_side/log_limits.py",
    "suite/harness/task_side/zygote.py",
    "suite/harness/task_side/namespaces.py",
    "suite/harness/task_side/observe.py",
    "suite/harness/task_side/startup/sitecustomize.py",
    "suite/harness/task_side/training_observer/**/*.py",
)
# Fakes replace trainers, so the trainers' rules also apply to them.
FAKES = tuple(f"suite/meta/fake_{part}.py" for part in ("trainer", "cluster", "model", "servers"))
TESTS = ("suite/conformance/**/*.py", "suite/faults/**/*.py", "suite/benchmarks/**/*.py")


def files(*patterns: str, without: tuple[str, ...] = ()) -> list[Path]:
    """Return files of the checkout by pattern, sorted, without the results of runs."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    found -= {path for pattern in without for path in ROOT.glob(pattern)}
    return sorted(path for path in found if (ROOT / "reports" / "runs") not in path.parents)


def name(path: Path) -> str:
    """Return the path relative to the project, which is also the id of a test."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> set[str]:
    """Return top-level names of all modules that the file imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def calls(path: Path, function: str) -> Iterator[ast.Call]:
    """Yield calls of `function` or of `anything.function`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = node.func
            if function == getattr(called, "attr", getattr(called, "id", None)):
                yield node


def tests(*paths: Path) -> set[str]:
    """Return the names of the tests in these files, by default of all that run trainers."""
    return {
        node.name
        for path in paths or files(*TESTS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def claimed() -> set[str]:
    """Return the ids in all `pytest.mark.claim(...)` of these tests."""
    return {
        argument.value
        for path in files(*TESTS)
        for call in calls(path, "claim")
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
