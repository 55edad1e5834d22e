"""Tests of `python -m reports bisect` on made-up releases: nothing is installed."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.ab import suite_run
from reports.rundir import frame
from reports.upgrade import bisection, environments, sides
from reports.upgrade.bisection import BAD, GOOD, UNKNOWN, Search, Trial
from suite.meta import made_up_run
from suite.meta.test_reports_paired import TEST, turns

RELEASED = ["2.22.0rc1", "2.21.0", "2.20.0", "2.19.1", "2.19.0", "2.18.0", "2.17.0"]
NODE = "suite/conformance/test_export.py::test_loads"


def search(results: Mapping[str, str]) -> tuple[Search, list[str]]:
    tried: list[str] = []

    def examine(version: str) -> Trial:
        tried.append(version)
        return Trial(version, results[version], "")

    versions = list(results)
    made = Search(versions, examine)
    for version in (versions[0], versions[-1]):
        made.trials[version] = Trial(version, results[version], "")
    made.run()
    return made, tried


@pytest.mark.parametrize("first_bad", range(1, 9))
def test_releases_are_halved(first_bad: int):
    results = {str(i): GOOD if i < first_bad else BAD for i in range(9)}
    found, tried = search(results)
    assert (found.place(GOOD), found.place(BAD)) == (first_bad - 1, first_bad)
    assert len(tried) <= 3
    assert found.left_out() == []


def test_a_release_that_cannot_be_examined_is_left_out():
    results = {"0": GOOD, "1": GOOD, "2": UNKNOWN, "3": BAD, "4": BAD}
    found, tried = search(results)
    assert sorted(tried) == ["1", "2", "3"]
    assert found.left_out() == ["2"]


def test_pre_releases_are_left_out_and_the_ends_are_kept():
    assert bisection.between(RELEASED, "2.18.0", "2.21.0") == [
        "2.18.0",
        "2.19.0",
        "2.19.1",
        "2.20.0",
        "2.21.0",
    ]


class Index:
    """Takes the place of pip and pytest: a test fails, or is slower, as `is_bad` says."""

    def __init__(self) -> None:
        self.first_bad, self.bad_protobuf = "2.20.0", ""
        self.refused: set[str] = set()  # pairs of versions that cannot be installed together
        self.protobuf = {"2.21.0": "7.1", "2.20.0": "7.1"}  # by TensorFlow, else 5.1
        self.made: list[str] = []
        self.verdict = "failed"
        self.slower = 1.3
        self.arguments: list[Sequence[str]] = []

    def python_of(self, side: sides.Side, *_: Any) -> str:
        found = dict(re.split("[=]+", text) for text in side.requirements)
        version = found["tensorflow"]
        if version.endswith("*"):  # the newest that fits
            version = next(text for text in RELEASED if text.startswith(version[:-1]))
        protobuf = found.get("protobuf", self.protobuf.get(version, "5.1"))
        if {version, f"{version} {protobuf}"} & self.refused:
            raise environments.NotInstalled(side, "no wheel")
        self.made.append(" ".join(side.requirements))
        return f"{version}|{protobuf}"

    def installed(self, python: str) -> Mapping[str, str]:
        version, protobuf = python.split("|")
        return {"tensorflow": version, "protobuf": protobuf, "numpy": "2.0"}

    def is_bad(self, python: str) -> bool:
        version, protobuf = python.split("|")
        if self.bad_protobuf:
            return protobuf == self.bad_protobuf
        return RELEASED.index(version) <= RELEASED.index(self.first_bad)

    def run(
        self, _: Sequence[str], arguments: Sequence[str], directory: Path, *__: Any
    ) -> frame.RunFrames:
        given = {"run_id": directory.name}
        info = {**made_up_run.INFO, **given, "exit_code": 0}
        self.arguments.append(arguments)
        if "--base" in arguments:
            new = arguments[arguments.index("--new") + 1] if "--new" in arguments else ""
            ratio = self.slower if new and self.is_bad(new) else 1.0
            rows = [{**row, **given} for row in turns(ratio)]
            judged = made_up_run.verdict(made_up_run.SINGLE, "paired", "paired", **given, test=TEST)
            return made_up_run.write_numbers(directory, info, rows, [judged])
        python = arguments[arguments.index("--python") + 1]
        verdict = self.verdict if self.is_bad(python) else "passed"
        row = made_up_run.verdict(made_up_run.SINGLE, "export", "loads", verdict, **given)
        reason = "" if verdict == "passed" else "it broke"
        return made_up_run.write_numbers(directory, info, [], [{**row, "reason": reason}])


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(environments, "python_of", made.python_of)
    monkeypatch.setattr(bisection, "_released", lambda *_: RELEASED)
    monkeypatch.setattr(bisection, "_installed", made.installed)
    monkeypatch.setattr(suite_run, "run", made.run)
    return made


def bisect(directory: Path, *arguments: str) -> int:
    given = ["bisect", "--good", "tensorflow==2.17.*", "--bad", "tensorflow==2.21.*"]
    return command.main([*given, "--run-dir", str(directory), *arguments])


@pytest.mark.parametrize("first_bad", ["2.18.0", "2.19.1", "2.20.0", "2.21.0"])
def test_the_first_bad_release_of_a_test(index: Index, tmp_path: Path, capsys: Any, first_bad: str):
    index.first_bad = first_bad
    assert bisect(tmp_path, "--test", NODE) == 0
    last_good = RELEASED[RELEASED.index(first_bad) + 1]
    headline = (
        f"{NODE}: good on tensorflow {last_good}, bad on {first_bad}: the cause is tensorflow"
    )
    assert f"{headline} itself." in capsys.readouterr().out
    written = (tmp_path / "bisect.md").read_text()
    assert written.startswith("## ")
    assert "failed: it broke" in written


@pytest.mark.parametrize("verdict", ["known_deviation", "unsupported", "unexpected_pass"])
def test_whatever_is_no_pass_is_bad(index: Index, tmp_path: Path, capsys: Any, verdict: str):
    index.verdict = verdict
    assert bisect(tmp_path, "--test", NODE) == 0
    assert "bad on 2.20.0" in capsys.readouterr().out


def test_an_error_of_the_harness_is_neither(index: Index, tmp_path: Path, capsys: Any):
    index.verdict = "harness_error"
    assert bisect(tmp_path, "--test", NODE) == 2
    assert "--bad tensorflow==2.21.*: not examined there" in capsys.readouterr().err


def test_a_dependency_is_named_as_the_cause(index: Index, tmp_path: Path, capsys: Any):
    index.bad_protobuf = "7.1"
    assert bisect(tmp_path / "a", "--test", NODE) == 0
    assert "protobuf 5.1 → 7.1 alone is enough" in capsys.readouterr().out
    # The last good release refuses it, so that the first bad one is tried with the older.
    index.refused = {"2.19.1 7.1"}
    assert bisect(tmp_path / "b", "--test", NODE) == 0
    assert "protobuf 5.1 → 7.1, since 2.20.0 is good with 5.1" in capsys.readouterr().out
    index.refused = {"2.19.1 7.1", "2.20.0 5.1"}
    assert bisect(tmp_path / "c", "--test", NODE) == 0
    assert "tensorflow itself, or protobuf, which cannot be" in capsys.readouterr().out


def test_a_release_between_that_cannot_be_installed(index: Index, tmp_path: Path, capsys: Any):
    index.refused = {"2.19.1"}
    assert bisect(tmp_path, "--test", NODE) == 1
    printed = capsys.readouterr().out
    assert "good on tensorflow 2.19.0, bad on 2.20.0; not examined between them: 2.19.1" in printed
    assert "cannot be installed: no wheel" in printed
    assert "--release" not in printed


@pytest.mark.usefixtures("index")
def test_a_slower_series(tmp_path: Path, capsys: Any):
    assert bisect(tmp_path, "--series", "single_process-tf_keras") == 0
    printed = capsys.readouterr().out
    assert "single_process-tf_keras slower by 10 %: good on tensorflow 2.19.1, bad on" in printed
    assert "step time 1.3" in printed


def test_variables_and_keras_of_a_side_hold_for_its_step_times(index: Index, tmp_path: Path):
    words = ["--good", "tensorflow==2.17.* X=1 --keras keras3", "--bad"]
    words += ["tensorflow==2.21.* X=1 --keras keras3", "--series", "single_process-keras3"]
    assert command.main(["bisect", *words, "--run-dir", str(tmp_path)]) == 0
    for arguments in index.arguments:
        text = " ".join(arguments)
        assert "--keras keras3" in text
        assert "--base-env X=1 --new-env X=1" in text


@pytest.mark.parametrize(
    ("first_bad", "words"),
    [
        ("2.17.0", "--good tensorflow==2.17.*: bad there: failed: it broke"),
        ("2.22.0rc1", "--bad tensorflow==2.21.*: good there: passed"),
    ],
)
def test_an_end_that_is_not_as_it_should_be(
    index: Index, tmp_path: Path, capsys: Any, first_bad: str, words: str
):
    index.first_bad = first_bad
    assert bisect(tmp_path, "--test", NODE) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_keras_2_has_the_name_of_each_side():
    for written in ("t.py::t[a-keras2]", "t.py::t[a-tf_keras]"):
        assert bisection.on_side(written, {"tf-keras": "2.21.0"}) == "t.py::t[a-tf_keras]"
        assert bisection.on_side(written, {"keras": "2.15.0"}) == "t.py::t[a-keras2]"
    assert bisection.on_side("t.py::t[a-keras3]", {}) == "t.py::t[a-keras3]"


def test_a_companion_follows_the_releases(index: Index, tmp_path: Path):
    given = ["--good", "tensorflow==2.17.* tf_keras==2.17.* extra==1", "--bad"]
    given += ["tensorflow==2.21.* tf_keras==2.21.* extra==1", "--test", NODE]
    assert command.main(["bisect", *given, "--run-dir", str(tmp_path)]) == 0
    assert "extra==1 tensorflow==2.19.1 tf-keras==2.19.*" in index.made


@pytest.mark.parametrize(
    ("good", "bad", "more", "words"),
    [
        ("tensorflow==2.21.*", "tensorflow==2.17.*", ["--test", NODE], "is tensorflow 2.21.0, not"),
        ("tensorflow==2.17.*", "keras==3.*", ["--test", NODE], "two versions of the same package"),
        ("a==1 X=1", "a==2", ["--test", NODE], "may differ in requirements and options only"),
        ("tensorflow==2.17.*", "tensorflow==2.21.*", [], "give --test NODEID or --series NAME"),
        ("tensorflow==2.17.*", "", ["--test", NODE], "--bad: name a side"),
        ("a==1", "a==2", ["--test", "suite/none.py::t"], "there is no suite/none.py"),
        ("a==1", "a==2", ["--series", "s", "--worse", "-1"], "is not a percentage"),
    ],
)
def test_bad_input_is_one_line(
    index: Index, tmp_path: Path, capsys: Any, good: str, bad: str, more: list[str], words: str
):
    given = ["bisect", "--good", good, "--bad", bad, "--run-dir", str(tmp_path), *more]
    try:
        code = command.main(given)
    except SystemExit as error:  # argparse's own refusals
        code = error.code
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not any(tmp_path.iterdir())
    assert index.verdict


def test_a_signal_names_the_runs(index: Index, tmp_path: Path, capsys: Any, monkeypatch: Any):
    def stopped(*_: Any) -> None:
        raise suite_run.Stopped(signal.SIGTERM)

    monkeypatch.setattr(suite_run, "run", stopped)
    assert bisect(tmp_path, "--test", NODE) == 2
    assert f"stopped by SIGTERM; the runs are in {tmp_path}" in capsys.readouterr().err
    assert index.made
