"""Verdicts of two engines are compared, with made-up runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.compare import engines
from reports.rundir.frame import BadInput
from suite.meta import made_up_pair
from suite.meta.made_up_pair import side, verdict_rows

RAY: dict[str, Any] = {"engine": {"name": "ray"}}
ALL = {"saves": "passed", "restores": "known_deviation", "links": "unsupported"}


def on(name: str, more: dict[str, Any] | None = None, **verdicts: str):
    """Return a run with these verdicts in place of those of ALL."""
    return side(name, (), verdict_rows(**{**ALL, **verdicts}), **(more or {}))


@pytest.mark.parametrize(
    ("verdicts", "equal", "differing"),
    [
        ({}, 3, 0),
        ({"saves": "unsupported"}, 2, 0),
        ({"links": "passed"}, 2, 0),
        ({"links": "known_deviation"}, 2, 0),
        ({"saves": "failed"}, 2, 1),
        ({"saves": "known_deviation"}, 2, 1),
        ({"restores": "passed"}, 2, 1),
        ({"saves": "harness_error", "restores": "unexpected_pass"}, 1, 2),
    ],
)
def test_only_what_an_engine_cannot_do_may_differ(
    verdicts: dict[str, str], equal: int, differing: int
):
    found = engines.compare(on("local"), on("ray", RAY, **verdicts))
    assert (found.equal, found.differing) == (equal, differing)
    assert len(found.table.rows) == len(ALL) - equal


def test_differences_come_first_with_both_verdicts():
    found = engines.compare(on("a"), on("b", RAY, saves="unsupported", restores="passed"))
    first, second = found.table.rows
    assert (first.group, second.group) == (engines.DIFFERS, engines.CANNOT)
    assert first.cells[1:3] == ("known deviation", "passed")
    assert second.cells[1:3] == ("passed", "unsupported")
    assert [column.name for column in found.table.columns[1:3]] == ["local", "ray"]


def test_tests_of_one_run_are_counted():
    found = engines.compare(on("local"), on("ray", RAY, waits="failed"))
    assert (found.equal, found.differing, found.apart) == (3, 0, 1)
    assert found.outcome().endswith("1 in one run only")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (on("other"), "both runs are of the engine local"),
        (
            side("ray", (), verdict_rows(waits="passed"), **RAY),
            "the runs have no test in common",
        ),
        (on("ray", {**RAY, "versions": {"tensorflow": "2.1.0"}}), "different versions"),
    ],
    ids=["one engine", "no common test", "other versions"],
)
def test_runs_that_cannot_be_compared_are_refused(new, message: str):
    with pytest.raises(BadInput, match=message):
        engines.compare(on("local"), new)


@pytest.mark.parametrize("form", ["text", "md"])
@pytest.mark.parametrize(("word", "code"), [("passed", 0), ("unsupported", 0), ("failed", 1)])
def test_exit_code_is_1_if_verdicts_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, word: str, code: int
):
    base = made_up_pair.write(tmp_path / "local", (), verdict_rows(saves="passed"))
    new = made_up_pair.write(tmp_path / "ray", (), verdict_rows(saves=word), **RAY)
    assert command.main(["engines", str(base), str(new), "--format", form]) == code
    printed = capsys.readouterr().out
    assert f"{int(word == 'passed')} test" in printed.splitlines()[-1]
    assert ("saves" in printed) == (word != "passed")
