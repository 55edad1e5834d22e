"""Tests of findings: rows, reproductions and pages belong together, and verdicts compare them."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.harness.checks import reproductions as checks
from suite.harness.core.errors import CheckFailed, HarnessError, Unsupported
from suite.harness.core.history import Run
from suite.harness.scenarios.reproductions import FINDINGS, reproductions
from suite.harness.tables import verdicts
from suite.harness.tables.expectations import (
    KNOWN_DEVIATION,
    REPRODUCTION_TEST,
    UNSUPPORTED,
    Expectations,
    Row,
)
from suite.meta import histories

MOST_LINES = 80
MODULES = {*sys.stdlib_module_names, "tensorflow", "keras", "tf_keras", "numpy"}
REPRODUCTIONS = sorted(FINDINGS.glob("*.py"))
KERAS_3 = ("2.21.0", "keras3 3.15.1")


def names(rows: Any) -> set[str]:
    return {row.finding for row in rows}


def test_each_known_deviation_has_a_reproduction():
    rows = [row for row in Expectations.load().rows if row.status == KNOWN_DEVIATION]
    assert names(rows) == {path.stem for path in REPRODUCTIONS}


@pytest.mark.parametrize("path", REPRODUCTIONS, ids=lambda path: path.stem)
class TestReproduction:
    """Tests of each program of docs/findings."""

    def test_has_a_page_that_shows_its_command(self, path: Path):
        assert f"docs/findings/{path.name}" in path.with_suffix(".md").read_text()

    def test_is_short(self, path: Path):
        assert len(path.read_text().splitlines()) <= MOST_LINES

    def test_imports_only_what_a_maintainer_has(self, path: Path):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imports:
            named = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            assert {str(name).split(".")[0] for name in named} <= MODULES


def ended(tmp_path: Path, code: int, *lines: str) -> Run:
    """Return the history of a reproduction that printed these lines."""
    return histories.reproduced(tmp_path / "log", code, *lines)


def verdict(run: Run, row: Row | None) -> str:
    try:
        checks.promise_is_kept(run)
    except (CheckFailed, HarnessError, Unsupported) as error:
        return verdicts.decide(error, row).verdict
    return verdicts.decide(None, row).verdict


ROW = Row("*", "test_restore", KNOWN_DEVIATION, "it forgets", "message", "https://a.b", finding="f")
EXPECTED = replace(ROW, message="")
MISSING = replace(ROW, status=UNSUPPORTED, message="no Estimator")
OBSERVED = ("expected: 1", "observed: 2")


@pytest.mark.parametrize(
    ("code", "lines", "row", "wanted"),
    [
        (0, OBSERVED, None, verdicts.PASSED),
        (1, OBSERVED, EXPECTED, KNOWN_DEVIATION),
        (1, OBSERVED, None, verdicts.FAILED),
        (0, OBSERVED, EXPECTED, verdicts.UNEXPECTED_PASS),
        (125, ["cannot tell: no Estimator"], MISSING, UNSUPPORTED),
        (125, ["cannot tell: no Estimator"], None, verdicts.FAILED),
        (125, ["cannot tell: ports are taken"], MISSING, verdicts.FAILED),
        (125, ["cannot tell: ports are taken"], EXPECTED, verdicts.FAILED),
        (125, ["Killed"], MISSING, verdicts.HARNESS_ERROR),
        (-9, [""], EXPECTED, verdicts.HARNESS_ERROR),
        (1, ["Traceback"], EXPECTED, verdicts.HARNESS_ERROR),
    ],
)
def test_a_verdict_compares_reproduction_and_row(tmp_path, code, lines, row, wanted):
    assert verdict(ended(tmp_path, code, *lines), row) == wanted


def test_rows_of_a_finding_apply_to_its_reproduction_by_version():
    rows = Expectations((replace(ROW, keras="keras3"),))

    def match(finding: str, keras: str) -> Row | None:
        return rows.match(
            "single_process", REPRODUCTION_TEST, "none", "2.21.0", keras, scene=finding
        )

    assert match("f", "keras3 3.15.1") == replace(EXPECTED, keras="keras3")
    assert match("f", "tf_keras 2.21.0") is None
    assert match("g", "keras3 3.15.1") is None


def test_reproductions_run_in_each_flavor_where_their_rows_name_one(tmp_path: Path):
    (tmp_path / "unlisted.py").touch()
    (scene,) = reproductions(tmp_path)
    assert scene.__name__ == "unlisted"
    for keras, runs in (("tf_keras", True), ("keras3", False)):
        assert scene.means(SimpleNamespace(keras=keras)) is runs  # type: ignore[attr-defined]
