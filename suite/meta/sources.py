"""The project's own source, read without importing it: for tests of rules that hold everywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTEST_SIDE = ("conftest.py", "suite/**/*.py", "reports/**/*.py")
# Runs in a task, under whatever interpreter TensorFlow is installed for.
WORKER_SIDE = (
    "reference_trainers/**/*.py",
    "suite/programs/**/*.py",
    "suite/harness/task_side/tmpfs_disk.py",
    "suite/harness/task_side/cluster_init.py",
    "suite/harness/task_side/log_limits.py",
    "suite/harness/task_side/zygote.py",
    "suite/harness/task_side/namespaces.py",
)
# Stand in for trainers, so what holds for these holds for them.
FAKES = tuple(f"suite/meta/fake_{part}.py" for part in ("trainer", "cluster", "model", "servers"))
TESTS = ("suite/conformance/**/*.py", "suite/faults/**/*.py", "suite/benchmarks/**/*.py")


def files(*patterns: str, without: tuple[str, ...] = ()) -> list[Path]:
    """Files of the checkout by pattern, in order; results of runs are no source."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    found -= {path for pattern in without for path in ROOT.glob(pattern)}
    return sorted(path for path in found if (ROOT / "reports" / "runs") not in path.parents)


def name(path: Path) -> str:
    """The path as a person would name it; also the id of a test."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> set[str]:
    """Top-level names of all modules that the file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def calls(path: Path, function: str) -> Iterator[ast.Call]:
    """Calls of `function` or of `anything.function`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = node.func
            if function == getattr(called, "attr", getattr(called, "id", None)):
                yield node


def tests() -> set[str]:
    """Names of all test functions that run trainers."""
    return {
        node.name
        for path in files(*TESTS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def claimed() -> set[str]:
    """Ids in all `pytest.mark.claim(...)` of these tests."""
    return {
        argument.value
        for path in files(*TESTS)
        for call in calls(path, "claim")
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
