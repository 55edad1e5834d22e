"""Tests of the order of subpackages: a room imports only from rooms below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.meta.sources import ROOT, files, name, tree

# The rooms from which each subpackage may import, and its own room. Standard library and packages
# are free. The harness may import `reports` and its rooms; `reports` may not import `suite`.
HARNESS = {
    "plugin": {"pytest_plugin"},
    "pytest_plugin": {"ab", "faults", "metrics"},
    "ab": {"scenarios", "metrics"},
    "faults": {"scenarios", "checks"},
    "scenarios": {"session"},
    "session": {"engines", "tables"},
    "engines": {"cluster"},
    "checks": {"metrics", "tables"},
    "cluster": {"environment"},
    "metrics": {"core", "tables"},
    "environment": {"core"},
    "tables": {"core"},
    "core": set(),
    "task_side": set(),
}
REPORTS = {
    "__main__": {"history", "matrix", "upgrade"},
    "cli_options": {"stats"},
    "upgrade": {"compare"},
    "compare": {"render"},
    "history": {"render"},
    "matrix": {"render"},
    "render": {"charts"},
    "charts": {"sections"},
    "sections": {"ab"},
    "ab": {"rundir", "stats", "cli_options"},
    "rundir": {"core"},
    "stats": {"core"},
    "core": set(),
    "__init__": {"rundir"},
}


def closure(rows: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return all rooms below each room."""

    def below(room: str) -> set[str]:
        return rows[room].union(*(below(other) for other in rows[room]))

    return {room: below(room) for room in rows}


def imported(path: Path) -> Iterator[str]:
    """Yield dotted names of all project modules that a file imports, anywhere in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows_up(
    package: str, rows: dict[str, set[str]], paths: list[Path], folder: Path | None = None
) -> list[str]:
    """Return each import that does not point downwards, as `file: module`.

    `folder` is the package's folder if it is not in the checkout.
    """
    folder = folder or ROOT / package.replace(".", "/")
    allowed = closure(rows)
    found = []
    for path in paths:
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        for module in imported(path):
            if module.startswith(f"{package}."):
                other = module.removeprefix(f"{package}.").split(".")[0]
                if other != room and other not in allowed.get(room, set()):
                    found.append(f"{path.relative_to(folder)}: {module}")
    return found


@pytest.mark.parametrize(
    ("package", "rows"),
    [("suite.harness", HARNESS), ("reports", REPORTS)],
    ids=["suite", "reports"],
)
def test_imports_point_downwards(package: str, rows: dict[str, set[str]]):
    paths = files(f"{package.replace('.', '/')}/**/*.py")
    assert {path.parent for path in paths} >= {ROOT / package.replace(".", "/")}
    assert arrows_up(package, rows, paths) == []


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("checks/wrong.py", "from suite.harness import scenarios"),
        ("core/wrong.py", "def f():\n    from suite.harness.cluster.cluster import Cluster"),
        ("cluster/wrong.py", "import suite.harness.task_side.zygote"),
        ("task_side/wrong.py", "from suite.harness.core import paths"),
    ],
)
def test_an_import_that_points_upwards_is_found(tmp_path: Path, place: str, text: str):
    source = tmp_path / place
    source.parent.mkdir(parents=True)
    source.write_text(text)
    assert arrows_up("suite.harness", HARNESS, [source], tmp_path)
    innocent = source.with_name("innocent.py")
    innocent.write_text("import os\nfrom reports.core import text\n")
    assert not arrows_up("suite.harness", HARNESS, [innocent], tmp_path)


def test_no_room_imports_the_task_side():
    paths = files(
        "suite/**/*.py", "reports/**/*.py", "conftest.py", without=("suite/meta/**/*.py",)
    )
    found = [name(path) for path in paths for m in imported(path) if "harness.task_side" in m]
    assert found == []
