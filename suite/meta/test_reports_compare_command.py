"""Tests of `python -m reports compare`: exit codes, output formats and refusals."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from reports import __main__ as command
from reports.compare import gate, output
from reports.stats import ratio_tests, run_levels
from suite.meta.made_up_pair import side, step_times, times, usual, verdict_rows, write
from suite.meta.made_up_run import INFO, NASTY

Runs = dict[str, str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return run directories by name: a base with two series and two tests, and variants of it."""
    root = tmp_path_factory.mktemp("runs")
    made = {
        "base": write(root / "base"),
        "same": write(root / "same"),
        "slower": write(root / "slower", step_times(usual(p50=1.3))),
        "again": write(root / "again", step_times(usual(p50=1.3))),
        "broken": write(
            root / "broken", verdict_dicts=verdict_rows(loads="failed", serves="passed")
        ),
        "smaller": write(root / "smaller", verdict_dicts=verdict_rows(loads="passed")),
        "other": write(
            root / "other", step_times({"other": times()}), verdict_rows(other="passed")
        ),
        "silent": write(root / "silent", []),
        "quiet": write(root / "quiet", []),
    }
    for number in range(5):
        write(root / "many" / f"run-{number}", step_times(usual(p50=1 + number / 1000)))
    (root / "many" / "latest").symlink_to(root / "many" / "run-4")
    (root / "empty").mkdir()
    return {name: str(path) for name, path in {**made, "root": root}.items()}


def called(runs: Runs, line: str) -> int:
    """Return the exit code of a command line in which names of runs become their paths."""
    return command.main(["compare", *(runs.get(word, word) for word in line.split())])


CODES = [
    ("base same --drift 0", 0),
    ("base same --drift 0 --strict", 0),
    ("base slower --drift 1", 1),
    ("base slower --drift 1 --strict", 1),
    ("base slower --drift 1 --confirm again", 1),
    ("base slower --drift 1 --confirm same", 0),
    ("base slower --drift 1 --confirm same --strict", 3),
    ("slower base --drift 1", 0),
    ("base slower", 0),
    ("base slower --drift 30", 0),
    ("base slower --drift 30 --strict", 3),
    ("base same", 0),
    ("base same --strict", 3),
    ("base broken --drift 0", 1),
    ("silent quiet --verdicts", 0),
    ("silent broken --verdicts", 1),
    ("base slower --drift 1 --verdicts", 0),
    ("base smaller --drift 0", 0),
    ("base smaller --drift 0 --strict", 3),
    ("base other", 2),
    ("base silent", 2),
    ("base base", 2),
]


@pytest.mark.parametrize(("line", "code"), CODES, ids=[row[0] for row in CODES])
def test_compare_exit_code_is_that_of_gate(runs: Runs, capsys: Any, line: str, code: int):
    assert called(runs, line) == code
    printed = capsys.readouterr()
    assert (printed.out == "") is (code == 2)
    assert printed.err.count("\n") == (code == 2)


def test_drift_is_estimated_from_runs_of_base(runs: Runs, capsys: Any):
    many = f"{runs['root']}/many"
    assert called(runs, f"{many} slower --format json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["drift_source"] == "estimated from 5 runs of BASE"
    assert found["drift"] < 0.01
    assert found["base"]["run_ids"] == [f"run-{number}" for number in range(5)]


REFUSED = [
    ("base missing", "missing does not exist"),
    ("base same --confirm missing", "missing does not exist"),
    ("base same --confirm same", "run 'same' is on two sides"),
    ("base base", "run 'base' is on two sides"),
    ("base other", "no series of numbers in common"),
    ("base silent", "measure the same tests in both"),
    ("silent quiet", "BASE has 0 series, NEW 0; measure the same tests in both"),
    ("base other --verdicts", "have no test and no number in common"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_incomparable_runs_are_rejected_in_one_line(runs, capsys: Any, line, message):
    assert called(runs, line) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_directory_without_runs_is_rejected(runs: Runs, capsys: Any):
    assert called(runs, f"base {runs['root']}/empty") == 2
    assert "is neither a run (no run.json) nor a directory of runs" in capsys.readouterr().err


WRONG = [
    ("base", "required: NEW"),
    ("base same other", "unrecognized arguments"),
    ("base same --floor 5", "'5' is not a percentage from 0 to 2"),
    ("base same --floor two", "'two' is not a percentage from 0 to 2"),
    ("base same --floor nan", "'nan' is not a percentage from 0 to 2"),
    ("base same --drift -1", "'-1' is not a percentage from 0 to 100"),
    ("base same --format html", "invalid choice: 'html'"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[row[0] for row in WRONG])
def test_invalid_command_line_is_rejected_in_one_line(runs: Runs, capsys: Any, line, message):
    with pytest.raises(SystemExit, match="2"):
        called(runs, line)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert message in printed


@pytest.mark.parametrize("width", [80, 140])
def test_text_ends_with_answer_and_fits_terminal(
    runs: Runs, capsys: Any, monkeypatch: Any, width: int
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert called(runs, "base slower --drift 1") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 regression, 2 no change, 1 cannot tell"
    assert max(map(len, lines)) <= width
    shown = " ".join(lines)
    assert "step_time_p50_s" in shown
    assert "1.300" in shown


def test_markdown_starts_with_answer_and_folds_cannot_tell(runs: Runs, capsys: Any):
    assert called(runs, "base slower --drift 1 --format md") == 1
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "## ❌ 1 regression, 2 no change, 1 cannot tell"
    assert lines.index("### Series: changed") < lines.index(
        "<details><summary>Series: cannot tell (1)</summary>"
    )
    assert printed.count("<details>") == printed.count("</details>") == 2
    assert called(runs, "base same --drift 0 --format md") == 0
    assert capsys.readouterr().out.startswith("## ✅ 0 regressions, 4 no change\n")
    assert called(runs, "base same --strict --format md") == 3
    assert capsys.readouterr().out.startswith("## ❔ 0 regressions")


def test_markdown_fits_comment_and_counts_omitted_rows():
    names = {f"many_{number}": "passed" for number in range(500)}
    base = side("base", verdict_dicts=verdict_rows(**names))
    failed = {"verdict": "failed", "reason": 99 * NASTY}
    new = side("new", verdict_dicts=[{**row, **failed} for row in verdict_rows(**names)])
    printed = output.as_markdown(gate.compare(base, new), exit_code=1)
    assert len(printed) < 65_536
    assert "440 more rows are in --format text and json." in printed
    assert "<b>" not in printed
    assert "500 regressions" in printed


def text(found: gate.Comparison) -> list[str]:
    console = Console(file=io.StringIO(), width=140)
    with console.capture() as printed:
        output.as_text(found, console)
    return printed.get().splitlines()


def test_cannot_tell_is_one_line_for_a_single_reason():
    rows = list(step_times({f"variant-{number}": times() for number in range(500)}))
    machine = {**INFO["machine"], "host": "host-2"}
    found = gate.compare(side("base", rows), side("new", rows, machine=machine))
    lines = text(found)
    reason = "different machine or number of processors"
    assert lines[3] == f"Series: cannot tell (500): {reason} (--format json lists all)"
    assert len(lines) < 15
    assert len(json.loads(output.as_json(found, 2))["series"]) == 500
    assert lines[3] in output.as_markdown(found, 2).replace("\\", "")


def test_cannot_tell_has_counts_and_examples_by_reason():
    before = [f"gone_{number}" for number in range(20)] + ["changed"]
    base = side("base", verdict_dicts=verdict_rows(**dict.fromkeys(before, "passed")))
    found = gate.compare(
        base, side("new", verdict_dicts=verdict_rows(changed="unsupported")), numbers=False
    )
    lines = text(found)
    gone, changed = "not in NEW, passed in BASE (20)", "passed in BASE, unsupported in NEW (1)"
    assert lines.index("Tests: cannot tell (21)") < lines.index(gone) < lines.index(changed)
    assert len([line for line in lines if "gone_" in line]) == output.EXAMPLES
    assert "--format json lists all" in " ".join(lines)


def test_help_states_the_actual_constants(capsys: Any):
    with pytest.raises(SystemExit):
        command.main(["compare", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        f"{run_levels.RUNS_ENOUGH} or more runs in BASE, else {100 * run_levels.DRIFT:g} " in shown
    )
    assert f"maximum and default: {100 * ratio_tests.FLOOR:g} " in shown


def test_different_conditions_are_reported_once():
    rows = list(step_times(usual()))
    found = gate.compare(side("base", rows), side("new", rows, spawn="exec"))
    (note,) = (line for line in output.notes(found) if "conditions" in line)
    assert note.endswith("numbers are not comparable: Tasks started by fork → exec.")


def test_different_machines_are_reported_once():
    machine = {**INFO["machine"], "host": "host-2"}
    rows = list(step_times(usual()))
    found = gate.compare(side("base", rows), side("new", rows, machine=machine))
    (note,) = (line for line in output.notes(found) if "machine" in line and "host-2" in line)
    assert note == (
        "Different machines, so numbers are not comparable: "
        "BASE on host-1, Made-up CPU @ 2 GHz, 2; "
        "NEW on host-2, Made-up CPU @ 2 GHz, 2."
    )


KEYS = (
    "exit_code regression counts base new confirm floor confidence drift drift_source comparisons "
    "series tests only_in_new"
)
SERIES_KEYS = (
    "test trainer keras backend workers replicas fault variant metric unit better answer reason "
    "collective_base collective_new base new processes_base processes_new ratio low high p"
)


def test_json_has_documented_keys_and_null_for_unknown(runs: Runs, capsys: Any):
    assert called(runs, "base slower --drift 1 --confirm again --strict --format json") == 1
    found = json.loads(capsys.readouterr().out)
    assert list(found) == KEYS.split()
    assert (found["exit_code"], found["regression"], found["comparisons"]) == (1, True, 2)
    assert found["counts"] == {
        "regression": 1,
        "improvement": 0,
        "no change": 2,
        "cannot tell": 1,
    }
    assert [list(item) for item in found["series"]] == [SERIES_KEYS.split()] * 2
    assert found["series"][0]["ratio"] == pytest.approx(1.3)
    assert set(found["tests"][0]) == {"test", "answer", "base", "new", "reason"}
    assert set(found["only_in_new"]) == {"tests", "series"}
    assert found["confirm"]["run_ids"] == ["again"]
    lone = gate.compare(
        side("base", step_times({"a": [1.0]})), side("new", step_times({"a": [1.0]}))
    )
    (series,) = json.loads(output.as_json(lone, 0))["series"]
    assert (series["low"], series["p"]) == (None, None)


def test_docstring_has_every_json_key():
    documented = set(re.findall(r"\w+", output.as_json.__doc__ or ""))
    assert [key for key in f"{KEYS} {SERIES_KEYS}".split() if key not in documented] == []
