"""Tests of rules for the source itself: allowed imports and syntax of each part."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reference_trainers import TRAINERS
from suite.campaigns import public_programs
from suite.meta.sources import (
    FAKES,
    PYTEST_SIDE,
    ROOT,
    WORKER_SIDE,
    calls,
    files,
    imports,
    name,
    tree,
)

EXAMINED = {"tensorflow", "keras", "tf_keras"}
# Pytest also reads the table of trainers and the vocabulary of events.
OWN = {"reference_trainers", "training_reports"}
WORKERS_MAY_IMPORT = {*EXAMINED, "numpy", *OWN, *sys.stdlib_module_names}
LATER_GENERICS = {"dict", "frozenset", "list", "set", "tuple", "type"}  # subscripted since 3.9

Rule = Callable[[Path], object]  # returns a true value if the file breaks it

PLAIN_LINES = 200  # at most, of a plain trainer


def newer_than_3_8(path: Path) -> str:
    """Return syntax that Python 3.8 cannot parse, or annotations that it cannot evaluate."""
    try:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    nodes = list(ast.walk(tree(path)))
    annotations = [getattr(n, "annotation", None) or getattr(n, "returns", None) for n in nodes]
    for part in (p for a in annotations if a for p in ast.walk(a)):
        union = isinstance(part, ast.BinOp)
        if union or (isinstance(part, ast.Subscript) and ast.unparse(part.value) in LATER_GENERICS):
            return f"line {part.lineno}: {ast.unparse(part)}"
    return ""


def imports_what_a_task_may_lack(path: Path) -> set[str]:
    """Return imported modules that a TensorFlow environment may lack, without local files."""
    foreign = imports(path) - WORKERS_MAY_IMPORT
    if path.parent == public_programs.DESCRIPTIONS:  # the programs that it runs are placed there
        foreign -= {Path(name).stem for row in public_programs.PROGRAMS for name in row.files}
    return {module for module in foreign if not is_sibling(path, module)}


def is_sibling(path: Path, module: str) -> bool:
    return any((path.parent / name).exists() for name in (f"{module}.py", f"{module}/__init__.py"))


def imports_tensorflow(path: Path) -> set[str]:
    return imports(path) & EXAMINED


def imports_the_suite(path: Path) -> set[str]:
    return imports(path) & {"suite", "reference_trainers", "pytest"}


def sleeps(path: Path) -> list[int]:
    return [call.lineno for call in calls(path, "sleep")]


def says_nothing(path: Path) -> bool:
    """Return True if the file has code without a docstring; an empty __init__.py needs none."""
    return bool(tree(path).body) and not ast.get_docstring(tree(path))


def imports_more_than_a_plain_trainer(path: Path) -> set[str]:
    own = {"tensorflow", "numpy", "training_reports"}
    return imports(path) - own - sys.stdlib_module_names


def is_long(path: Path) -> bool:
    return len(path.read_text("utf-8").splitlines()) > PLAIN_LINES


def broken(rule: Rule, *patterns: str, without: tuple[str, ...] = ()) -> dict[str, object]:
    found = {name(path): rule(path) for path in files(*patterns, without=without)}
    return {path: how for path, how in found.items() if how}


def test_worker_side_files_are_python_3_8():
    assert broken(newer_than_3_8, *WORKER_SIDE, *FAKES) == {}


def test_worker_side_files_import_nothing_that_a_task_may_lack():
    assert broken(imports_what_a_task_may_lack, *WORKER_SIDE, *FAKES) == {}


@pytest.mark.parametrize("rule", [imports_more_than_a_plain_trainer, is_long])
def test_plain_trainers_are_one_short_file_each(rule: Rule):
    plain = [f"reference_trainers/{row.name}.py" for row in TRAINERS if row.plain]
    assert plain
    assert broken(rule, *plain, "reference_trainers/training_reports.py") == {}


def test_the_pytest_side_never_imports_tensorflow():
    assert broken(imports_tensorflow, *PYTEST_SIDE, without=WORKER_SIDE) == {}


def test_this_process_has_imported_no_tensorflow():
    assert not EXAMINED & set(sys.modules)


def test_reports_know_nothing_of_the_suite():
    assert broken(imports_the_suite, "reports/**/*.py") == {}


def test_only_one_module_sleeps():
    everything = (*PYTEST_SIDE, *WORKER_SIDE)
    assert list(broken(sleeps, *everything)) == ["suite/harness/core/deadlines.py"]


def test_every_module_says_why_it_exists():
    assert broken(says_nothing, *PYTEST_SIDE, *WORKER_SIDE) == {}


def test_what_forks_tasks_runs_without_any_package():
    """`-S` excludes site-packages, so that pytest, pandas and TensorFlow are all absent."""
    table = "import sys; sys.path.insert(0, sys.argv[1]); import reference_trainers.support.events"
    zygote = ROOT / "suite" / "harness" / "task_side" / "zygote.py"
    for arguments in (["-c", table, ROOT], [zygote, "--help"]):
        command = [sys.executable, "-S", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (newer_than_3_8, "match x:\n    case 1: pass"),
        (newer_than_3_8, "def f(x: list[int]): pass"),
        (newer_than_3_8, "def f() -> int | None: pass"),
        (newer_than_3_8, "x: 'int' | None = 1"),
        (imports_what_a_task_may_lack, "import suite.harness.core.history"),
        (imports_what_a_task_may_lack, "def f():\n    from pandas import DataFrame"),
        (imports_more_than_a_plain_trainer, "from reference_trainers import workload"),
        (is_long, "\n" * (PLAIN_LINES + 1)),
        (imports_tensorflow, "def f():\n    import tensorflow.python as tf"),
        (imports_tensorflow, "from tf_keras import layers"),
        (imports_the_suite, "from suite.harness.core import history"),
        (sleeps, "import time as t\nt.sleep(1)"),
        (sleeps, "from time import sleep\nsleep(1)"),
        (says_nothing, "x = 1"),
    ],
)
def test_each_rule_finds_what_breaks_it(tmp_path: Path, rule: Rule, text: str):
    source = tmp_path / "wrong.py"
    source.write_text(text)
    assert rule(source)
    source = tmp_path / "innocent.py"
    source.write_text('"""Why."""\nimport os\n\ndef f(x: "int") -> None:\n    os.getpid()\n')
    assert not rule(source)
