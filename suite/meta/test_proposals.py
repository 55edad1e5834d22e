"""Proposed changes of the expectations, from made-up verdicts on several versions."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from suite.harness.core.errors import BadInput
from suite.harness.tables.expectations import Expectations
from suite.meta import made_up_run
from suite.meta.test_matrix import write

HEAD = "# Rows, and what they mean.\n\n"
ROW = """[[expectation]]
trainer = "single_process"
test = "test_resumes|test_loss_falls"
status = "known_deviation"
reason = "It repeats the epoch"
message = 'step \\d+'
url = "https://example.org/1"
"""
OTHER = ROW.replace("single_process", "keras_mirrored")
PASSED = ("unexpected_pass", "passes, but was expected known_deviation: It repeats the epoch")
DEVIATES = ("known_deviation", "It repeats the epoch")
ERROR = ("failed", "worker/0 failed (exit 1): TypeError: no argument 'x' in 12 calls")


def run(directory: Path, version: str, results: Iterable[tuple[str, str]], test: str) -> Path:
    """Write a run of a version of TensorFlow; its tests, one for each result, begin with `test`."""
    versions = {"tensorflow": version, "keras": "keras3 3.15.1", "python": "3.11.9"}
    rows = [
        made_up_run.verdict(
            "single_process",
            "faults",
            f"{test}{i}-single_process]",
            verdict,
            reason=reason,
            **versions,
        )
        for i, (verdict, reason) in enumerate(results)
    ]
    return write(directory / version, rows)


def propose(
    directory: Path, capsys: Any, text: str, by_version: Mapping[str, Any], test: str = "resumes["
) -> tuple[int, str, str]:
    """Return the exit code, the patch and the notes for these results by version."""
    table = directory / "expectations.toml"
    table.write_text(text)
    runs = [run(directory, version, found, test) for version, found in by_version.items()]
    arguments = ["expectations", *map(str, runs), "--table", str(table)]
    code = command.main(arguments)
    printed = capsys.readouterr()
    assert table.read_text() == text
    return code, printed.out, printed.err


def changes(patch: str) -> list[str]:
    lines = [line for line in patch.splitlines() if re.match(r"[+-][^+-]", line)]
    return [line for line in lines if line.strip("+-")]


@pytest.mark.parametrize(
    ("by_version", "specifier"),
    [
        ({"2.12.1": [PASSED], "2.15.1": [DEVIATES], "2.21.0": [DEVIATES]}, ">=2.15"),
        ({"2.12.1": [DEVIATES], "2.15.1": [PASSED], "2.21.0": [PASSED]}, "<2.15"),
        ({"2.12.1": [DEVIATES], "2.15.1": [PASSED], "2.21.0": [DEVIATES]}, "!=2.15.*"),
        ({"2.9.3": [PASSED], "2.10.1": [DEVIATES]}, ">=2.10"),
    ],
    ids=["until", "since", "between", "2.9 is before 2.10"],
)
def test_row_is_narrowed_to_where_it_holds(
    tmp_path: Path, capsys: Any, by_version: Mapping[str, Any], specifier: str
):
    code, patch, notes = propose(tmp_path, capsys, HEAD + OTHER + "\n" + ROW, by_version)
    assert (code, notes) == (1, "")
    assert changes(patch) == [f'+tensorflow = "{specifier}"']
    own = patch.split('test = "test_resumes')[1]  # not of the other trainer
    assert f'test_loss_falls"\n+tensorflow = "{specifier}"' in own


def test_narrowed_row_keeps_its_predicate(tmp_path: Path, capsys: Any):
    text = ROW.replace("status", 'tensorflow = ">=2.4"\nstatus')
    found = {"2.12.1": [PASSED], "2.15.1": [DEVIATES]}
    _, patch, _ = propose(tmp_path, capsys, text, found)
    assert changes(patch) == ['-tensorflow = ">=2.4"', '+tensorflow = ">=2.4,>=2.15"']


def test_row_is_not_narrowed_twice(tmp_path: Path, capsys: Any):
    text = ROW.replace("status", 'tensorflow = ">=2.15"\nstatus')
    found = {"2.12.1": [PASSED], "2.15.1": [DEVIATES]}
    assert propose(tmp_path, capsys, text, found) == (0, "", "")


def test_row_that_never_held_is_noted_as_stale(tmp_path: Path, capsys: Any):
    code, patch, notes = propose(tmp_path, capsys, ROW, {"2.12.1": [PASSED]})
    assert code == 1
    assert changes(patch) == ['+tensorflow = "!=2.12.*"']
    assert "passes wherever it was run; remove the row" in notes


def test_row_that_holds_for_some_tests_only_is_noted(tmp_path: Path, capsys: Any):
    code, patch, notes = propose(tmp_path, capsys, ROW, {"2.12.1": [PASSED, DEVIATES]})
    assert (code, patch) == (1, "")
    assert "passes and deviates on TensorFlow 2.12; name the tests" in notes


def test_row_is_narrowed_by_its_reproduction(tmp_path: Path, capsys: Any):
    text = ROW.replace("reason", 'finding = "repeats"\nreason')
    results = {"2.12.1": [PASSED], "2.15.1": [DEVIATES]}
    reproduction = "reproduction_agrees_with_its_row[repeats-"
    _, patch, _ = propose(tmp_path, capsys, text, results, test=reproduction)
    assert changes(patch) == ['+tensorflow = ">=2.15"']


def test_row_that_may_pass_is_left_alone(tmp_path: Path, capsys: Any):
    assert propose(tmp_path, capsys, ROW + "may_pass = true\n", {"2.12.1": [PASSED]})[0] == 0


@pytest.mark.parametrize(
    ("by_version", "specifier"),
    [
        ({"2.12.1": [ERROR], "2.15.1": [DEVIATES]}, ['+tensorflow = "<2.15"']),
        ({"2.12.1": [DEVIATES], "2.15.1": [ERROR]}, ['+tensorflow = ">=2.15"']),
        ({"2.9.3": [ERROR], "2.10.1": [DEVIATES]}, ['+tensorflow = "<2.10"']),
        ({"2.12.1": [ERROR], "2.15.1": [ERROR]}, []),
        ({"2.12.1": [ERROR]}, ['+tensorflow = "==2.12.*"']),
        (
            {"2.12.1": [ERROR], "2.15.1": [DEVIATES], "2.21.0": [ERROR]},
            ['+tensorflow = "!=2.15.*"'],
        ),
    ],
    ids=["first", "last", "2.9 is before 2.10", "all", "the only one", "first and last"],
)
def test_failure_without_row_gets_one(
    tmp_path: Path, capsys: Any, by_version: Mapping[str, Any], specifier: list[str]
):
    code, patch, _ = propose(tmp_path, capsys, ROW, by_version)
    assert code == 1
    assert changes(patch) == [
        "+[[expectation]]",
        '+trainer = "single_process"',
        '+test = "test_resumes"',
        *specifier,
        '+status = "known_deviation"',
        '+reason = ""',
        r'''+message = "TypeError: no argument 'x' in \\d+ calls"''',
        '+url = ""',
    ]


def test_proposed_row_is_refused_until_it_is_explained(tmp_path: Path, capsys: Any):
    missing = ("failed", "unsupported without a row in expectations.toml: no GPU (device 0)")
    _, patch, _ = propose(tmp_path, capsys, ROW, {"2.12.1": [missing]})
    row = "\n".join(line[1:] for line in changes(patch)) + "\n"
    assert 'status = "unsupported"' in row
    assert r"message = 'no GPU \(device \d+\)'" in row
    path = tmp_path / "new.toml"
    path.write_text(row)
    with pytest.raises(BadInput, match="reason is missing"):
        Expectations.load(path)
    path.write_text(row.replace('reason = ""', 'reason = "It has none"'))
    with pytest.raises(BadInput, match="url is missing"):
        Expectations.load(path)


def test_runs_that_agree_propose_nothing(tmp_path: Path, capsys: Any):
    found = {"2.12.1": [DEVIATES], "2.15.1": [("passed", "")]}
    assert propose(tmp_path, capsys, ROW, found) == (0, "", "")


@pytest.mark.parametrize("text", ['[[expectation]]\ntrainer = "*"\n', ROW + 'tensorflow = "new"'])
def test_row_that_is_not_valid_is_bad_input(tmp_path: Path, capsys: Any, text: str):
    code, patch, error = propose(tmp_path, capsys, text, {"2.12.1": [DEVIATES]})
    assert (code, patch) == (2, "")
    assert "has a row that is not valid" in error


@pytest.mark.parametrize("text", ["", "[[claim]]\nid = 1\n", "[[expectation]\n"])
def test_other_file_is_bad_input(tmp_path: Path, capsys: Any, text: str):
    code, patch, error = propose(tmp_path, capsys, text, {"2.12.1": [DEVIATES]})
    assert (code, patch) == (2, "")
    assert "is not a table of expectations" in error
    assert error.count("\n") == 1
