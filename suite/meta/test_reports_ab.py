"""Tests of `python -m reports ab`: it judges interleaved runs, confirms them, passes options on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports import __main__ as command
from reports.ab import command as ab
from reports.rundir import frame
from reports.rundir.frame import BadInput
from reports.stats.ratio_tests import Answer
from suite.meta import made_up_run
from suite.meta.sessions import bound
from suite.meta.test_reports_paired import TEST, turns


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widen the terminal, so that every answer fits on one line."""
    monkeypatch.setenv("COLUMNS", "200")


def run_of(
    directory: Path, ratio: float, pairs: int = 12, broken: str = "", verdict: str = "failed"
) -> frame.RunFrames:
    """Write a run whose new side takes `ratio` times as long.

    With `broken`, its test ends in `verdict` for that reason.
    """
    info = {**made_up_run.INFO, "run_id": directory.name, "exit_code": 1 if broken else 0}
    rows = [{**row, "run_id": directory.name} for row in turns(ratio, pairs)]
    given = {"run_id": directory.name, "test": TEST, "reason": broken}
    judged = made_up_run.verdict(
        made_up_run.SINGLE, "paired", "paired", verdict if broken else "passed", **given
    )
    return made_up_run.write_numbers(directory, info, rows, [judged])


def test_ab_broken_comparison_is_listed_without_pairs(tmp_path: Path, capsys: Any):
    """Half of the pairs are left when NEW dies. They say "no change" and must not count."""
    run_of(tmp_path / "run", 1.0, broken="worker/0 was killed")
    run_of(tmp_path / "whole", 1.0)
    for runs, compared in (([tmp_path / "run"], 0), ([tmp_path / "run", tmp_path / "whole"], 1)):
        assert command.main(["ab", *map(str, runs)]) == 1
        printed = capsys.readouterr().out
        assert "single_process · tf_keras 2.21.0: failed: worker/0 was killed" in printed
        assert printed.count("no change") == compared
        command.main(["ab", *map(str, runs), "--format", "json"])
        *whole, broken = json.loads(capsys.readouterr().out)
        assert [one["answer"] for one in whole] == ["no change"] * compared
        assert (broken["answer"], broken["reason"]) == ("failed", "worker/0 was killed")


def test_ab_unsupported_comparison_is_listed_without_failure(tmp_path: Path, capsys: Any):
    """Unsupported tests alone compare nothing, and must not pass as success."""
    run_of(tmp_path / "run", 1.0, broken="no Estimator", verdict="unsupported")
    run_of(tmp_path / "whole", 1.0)
    for others, code in (((), 2), ((str(tmp_path / "whole"),), 0)):
        assert command.main(["ab", str(tmp_path / "run"), *others]) == code
        text = capsys.readouterr().out
        assert "single_process · tf_keras 2.21.0: unsupported: no Estimator" in text


@pytest.mark.parametrize(
    ("ratio", "pairs", "strict", "code", "answer"),
    [
        (1.05, 12, (), 1, "regression"),
        (0.95, 12, (), 0, "improvement"),
        (1.0, 12, ("--strict",), 0, "no change"),
        (1.05, 2, (), 0, "cannot tell"),
        (1.05, 2, ("--strict",), 3, "cannot tell"),
    ],
)
def test_ab_exit_code_follows_answers(
    tmp_path: Path,
    capsys: Any,
    ratio: float,
    pairs: int,
    strict: tuple[str],
    code: int,
    answer: str,
):
    run_of(tmp_path / "run", ratio, pairs)
    assert command.main(["ab", str(tmp_path / "run"), *strict]) == code
    assert answer in capsys.readouterr().out


def test_ab_json_has_every_number(tmp_path: Path, capsys: Any):
    run_of(tmp_path / "run", 1.05)
    command.main(["ab", str(tmp_path / "run"), "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["answer"] == "regression"
    assert found["low"] < 1.05 < found["high"]
    assert found["pairs"] == 12
    assert found["base_step_s"] < found["new_step_s"]
    assert (found["base"], found["new"]) == ("identical", "identical")


def test_ab_markdown_is_a_table(tmp_path: Path, capsys: Any):
    run_of(tmp_path / "run", 1.05)
    command.main(["ab", str(tmp_path / "run"), "--format", "md"])
    assert "| regression |" in capsys.readouterr().out


Measure = Callable[..., frame.RunFrames]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Sequence[float]], list]:
    """Fake the measurement of these ratios in order; return the recorded requests."""

    def with_ratios(ratios: Sequence[float]) -> list:
        asked: list[tuple[Sequence[str], list[str]]] = []

        def measured(arguments: Sequence[str], _: Path, tests: Iterable[str] = ()) -> Any:
            asked.append((arguments, list(tests)))
            return run_of(tmp_path / f"run-{len(asked)}", ratios[len(asked) - 1])

        monkeypatch.setattr(ab, "measure", measured)
        return asked

    return with_ratios


@pytest.mark.parametrize(
    ("second", "answer", "code"), [(1.05, Answer.REGRESSION, 1), (1.0, Answer.CANNOT_TELL, 0)]
)
def test_ab_change_counts_if_confirmed(
    measure: Any, capsys: Any, second: float, answer: Answer, code: int
):
    asked = measure([1.05, second])
    assert command.main(["ab", "--base", "same", "--confirm"]) == code
    printed = capsys.readouterr().out
    assert answer.value in printed
    assert f"measured again, {second:.2f}" in printed.replace("\n", " ")
    (first, all_tests), (again, changed) = asked
    assert first == again == ["--base", "same"]
    assert not all_tests
    assert len(changed) == 1


def test_ab_json_has_both_measurements(measure: Any, capsys: Any):
    measure([1.05, 1.0])
    command.main(["ab", "--base", "same", "--confirm", "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["again"]["answer"]) == ("cannot tell", "no change")
    assert found["ratio"] > 1.04 > 1.02 > found["again"]["ratio"]


def test_ab_unchanged_is_not_measured_again(measure: Any):
    asked = measure([1.0])
    command.main(["ab", "--base", "same", "--confirm"])
    assert len(asked) == 1


def test_ab_options_reach_pytest_unchanged():
    given = ["--base", "ring", "--new", "nccl", "--trainer", "a", "--trainer", "b", "--budget", "9"]
    assert ab.pytest_arguments(command.parser().parse_args(["ab", *given])) == given


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--base: give a side to compare with, such as an interpreter or `same`"),
        (["run", "--base", "same"], "give recorded runs or --base, not both"),
        (["run", "--confirm"], "--confirm: a second measurement needs --base"),
        (["run", "--budget", "9"], "--budget: applies only to a new measurement"),
        (["other"], "the runs have no paired comparison; measure with --base"),
    ],
)
def test_ab_invalid_options_are_one_line(
    tmp_path: Path, monkeypatch: Any, capsys: Any, arguments: list[str], says: str
):
    run_of(tmp_path / "run", 1.05)
    made_up_run.write_small(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    assert command.main(["ab", *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[0].startswith(f"python -m reports ab: {says}")


def test_ab_fails_if_pytest_measures_nothing(monkeypatch: Any, tmp_path: Path):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=4))
    with pytest.raises(BadInput, match="nothing was measured: pytest refused its arguments"):
        ab.measure([], tmp_path / "run")


@pytest.mark.xdist_group("sessions")
def test_ab_measures_and_compares(plugin_stage: Path, sessions: Any):
    """Run the whole command on a fake trainer, twice, with too few pairs for an answer."""
    done = sessions["two sides"].result()
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert [one["answer"] for one in (first, second)] == ["cannot tell"] * 2
    assert first["ratio"] != second["ratio"]  # each comparison has its own measurement
    run = frame.load(plugin_stage / "ab")
    assert run.counts["passed"] == 2
    assert run.info["machine"]["processors"] == bound()
    assert set(run.info["machine"]["threads"].values()) == {3}
    assert run.info["machine"]["malloc"] == "default"
    assert (run.measurements["metric"] == "machine_steal_share").sum() == 2
    (at_once,) = re.findall(r"^scenarios at once: (\d+)$", done.stderr, re.M)
    assert int(at_once) <= len(bound()) + 1
