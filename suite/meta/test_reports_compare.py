"""Tests of the gate's answers for made-up runs with a known difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from reports.compare import gate, run_drift, run_groups
from reports.compare import output as shown
from reports.compare.gate import Comparison
from reports.rundir.frame import BadInput
from reports.stats import run_levels
from suite.meta.made_up_pair import run, side, step_times, times, verdict_rows
from suite.meta.made_up_run import INFO

REGRESSION, IMPROVEMENT, NO_CHANGE, CANNOT_TELL = (answer.value for answer in gate.Answer)


def compared(
    base: run_groups.Side, new: run_groups.Side, *confirm: run_groups.Side, **how: Any
) -> Comparison:
    return gate.compare(base, new, *confirm, **{"drift": 0.0, **how})


def judged(name: str, **series: Sequence[float]) -> run_groups.Side:
    return side(name, step_times(series))


def answers(found: Comparison) -> dict[str, str]:
    """Return the answers by name of the step time."""
    return {str(s.key["metric"]).split("_")[2]: s.answer.value for s in found.series}


def reason(found: Comparison) -> str:
    (only,) = found.series or found.tests
    assert only.answer is gate.Answer.CANNOT_TELL
    return only.reason


def test_gate_gives_four_answers():
    new = judged(
        "new", a=times(1.1, seed=2), b=times(0.9), c=times(1.0, seed=3), d=times(1, spread=0.5)
    )
    base = judged("base", a=times(), b=times(), c=times(), d=times(1.3, spread=0.4))
    found = compared(base, new)
    assert answers(found) == {
        "a": REGRESSION,
        "b": IMPROVEMENT,
        "c": NO_CHANGE,
        "d": CANNOT_TELL,
    }
    assert found.comparisons == 4
    assert found.series[0].effect
    assert found.series[0].effect.ratio == pytest.approx(1.1)
    assert found.series[3].reason == "too noisy"
    assert found.exit_code() == 1


def test_decrease_of_higher_is_better_is_regression():
    base, new = (
        side(name, step_times({"a": times(level)}, better="higher", unit="1/s"))
        for name, level in (("base", 1), ("new", 0.9))
    )
    assert answers(compared(base, new)) == {"a": REGRESSION}


def test_change_must_be_significant_among_all_comparisons():
    noisy: dict[str, Any] = {"count": 4, "spread": 0.03}
    base, new = {"a": times(**noisy)}, {"a": times(1.12, **noisy)}
    assert answers(compared(judged("base", **base), judged("new", **new))) == {"a": REGRESSION}
    many = {f"m{number}": times() for number in range(60)}
    found = compared(judged("base", **base, **many), judged("new", **new, **many))
    assert answers(found)["a"] == CANNOT_TELL
    assert found.series[0].reason == "not significant among 61 comparisons"


def test_significant_change_below_floor_does_not_count():
    base, new = judged("base", a=times()), judged("new", a=times(1.015))
    assert answers(compared(base, new)) == {"a": NO_CHANGE}
    assert answers(compared(base, new, floor=0.01)) == {"a": REGRESSION}
    assert reason(compared(base, judged("new", a=times(1.0195)))) == "within the floor of 2 %"


def test_series_key_excludes_versions_and_name_of_keras_2():
    base = side("base", step_times({"a": times()}, keras="keras2 2.15.0", tensorflow="2.15.1"))
    new = judged("new", a=times(1.1))
    found = compared(base, new)
    assert answers(found) == {"a": REGRESSION}
    assert found.series[0].key["keras"] == "tf_keras"


@pytest.mark.parametrize(
    "other",
    [
        {"keras": "keras3 3.15.1"},
        {"backend": "auto"},
        {"workers": 4},
        {"replicas": 4},
        {"variant": "large"},
        {"fault": "sigkill"},
        {"trainer": "another"},
        {"test": "suite/benchmarks/test_other.py::test_it[a]"},
        {"metric": "other_s"},
        {"unit": "ms"},
    ],
    ids=str,
)
def test_different_setup_is_another_series(other: dict[str, Any]):
    same = list(step_times({"same": times()}))
    base = side("base", [*same, *step_times({"a": times()})])
    found = compared(base, side("new", [*same, *step_times({"a": times()}, **other)]))
    assert answers(found) == {"a": CANNOT_TELL, "same": NO_CHANGE}
    assert found.series[0].reason == "not in NEW"
    assert len(found.new_series) == 1


def test_different_collective_is_not_compared():
    base = side("base", step_times({"a": times()}, backend="auto", collective="nccl"))
    new = side("new", step_times({"a": times(2)}, backend="auto", collective="ring"))
    assert reason(compared(base, new)) == "different collective: nccl → ring"


def test_other_machine_compares_only_verdicts():
    machine = {**INFO["machine"], "host": "host-2"}
    base = side("base", step_times({"a": times()}), verdict_rows(loads="passed"))
    new = side("new", step_times({"a": times(2)}), verdict_rows(loads="failed"), machine=machine)
    found = compared(base, new)
    assert answers(found) == {"a": CANNOT_TELL}
    assert [test.answer.value for test in found.tests] == [REGRESSION]
    assert not found.same_machine
    assert found.comparisons == 0


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        ([0.1], times(), "one process on a side: unknown scatter"),
        ([0.0, 0.1, 0.1], times(), "no ratio: a value is not positive"),
        (times(), [0.0, 0.0, 0.0], "no ratio: a value is not positive"),
    ],
)
def test_no_ratio_or_scatter_gives_cannot_tell(base, new, said):
    assert reason(compared(judged("base", a=base), judged("new", a=new))) == said


def test_zero_in_both_is_no_change():
    zeros = [0.0] * 3
    assert answers(compared(judged("base", a=zeros), judged("new", a=zeros))) == {"a": NO_CHANGE}


def test_values_of_one_process_count_once():
    rows = [row for value in times() for row in step_times({"a": [value]})]
    found = compared(side("base", rows), judged("new", a=times(2)))
    assert found.series[0].processes == (1, 6)


def test_series_exclude_undirected_numbers():
    extra = list(step_times({"none": times()}, better="none"))
    new = [*step_times({"a": times()}), *extra]
    found = compared(side("base", [*step_times({"a": times()}), *extra]), side("new", new))
    assert answers(found) == {"a": NO_CHANGE}


@pytest.mark.parametrize(
    ("again", "answer"),
    [(1.1, REGRESSION), (1.0, CANNOT_TELL), (0.9, CANNOT_TELL)],
)
def test_change_counts_if_confirming_run_shows_it(again: float, answer: str):
    base, new = judged("base", a=times()), judged("new", a=times(1.1))
    found = compared(base, new, judged("again", a=times(again)))
    assert answers(found) == {"a": answer}


def test_confirming_run_without_series_confirms_nothing():
    base, new = judged("base", a=times()), judged("new", a=times(1.1))
    found = compared(base, new, judged("again", b=times()))
    assert reason(found) == "regression, which the confirming run did not measure"
    found = compared(base, new, judged("again", a=times()))
    assert reason(found) == "regression, which the confirming run does not show"


def test_exit_code_is_2_if_no_number_is_comparable():
    """The verdicts alone would pass, but the caller asked for numbers."""
    one, red = list(step_times({"a": [0.1]})), verdict_rows(loads="failed")
    base = side("base", one, verdict_rows(loads="passed"))
    found = compared(base, side("new", one, verdict_rows(loads="passed")))
    assert (found.exit_code(), found.exit_code(strict=True)) == (2, 2)
    why = "no number could be compared: one process on a side: unknown scatter"
    assert shown.headline(found).startswith(why)
    assert shown.as_markdown(found, 2).startswith("## ❔")
    assert compared(base, side("new", one, red)).exit_code() == 1
    assert (
        compared(base, side("new", one, verdict_rows(loads="passed")), numbers=False).exit_code()
        == 0
    )


VERDICTS = [
    ("passed", "passed", NO_CHANGE),
    ("passed", "failed", REGRESSION),
    ("passed", "harness_error", REGRESSION),
    ("known_deviation", "unexpected_pass", REGRESSION),
    ("unsupported", "failed", REGRESSION),
    ("failed", "harness_error", NO_CHANGE),
    ("failed", "passed", IMPROVEMENT),
    ("known_deviation", "passed", IMPROVEMENT),
    ("passed", "known_deviation", CANNOT_TELL),
    ("failed", "known_deviation", CANNOT_TELL),
    ("known_deviation", "known_deviation", NO_CHANGE),
]


@pytest.mark.parametrize(("was", "now", "answer"), VERDICTS)
def test_newly_red_verdict_is_regression(was: str, now: str, answer: str):
    base, new = (
        side("base", verdict_dicts=verdict_rows(loads=was)),
        side("new", verdict_dicts=verdict_rows(loads=now)),
    )
    (test,) = compared(base, new, numbers=False).tests
    assert (test.answer.value, test.test) == (answer, verdict_rows(loads=now)[0]["test"])
    again = side("again", verdict_dicts=verdict_rows(loads="unsupported"))
    found = compared(base, new, again, numbers=False)
    assert found.tests[0].answer.value in (CANNOT_TELL, NO_CHANGE)
    assert found.exit_code() == 0


def test_removed_and_new_tests_are_reported():
    base = side("base", verdict_dicts=verdict_rows(loads="passed", goes="passed"))
    new = side("new", verdict_dicts=verdict_rows(loads="passed", comes="failed"))
    found = compared(base, new, numbers=False)
    gone = found.tests[1]
    assert (gone.answer.value, gone.reason) == (CANNOT_TELL, "not in NEW, passed in BASE")
    assert found.new_tests == (verdict_rows(comes="failed")[0]["test"],)
    assert (found.exit_code(), found.exit_code(strict=True)) == (0, 3)


def test_flaky_verdict_gives_cannot_tell():
    runs = [
        run(f"base-{word}", verdict_dicts=verdict_rows(loads=word)) for word in ("passed", "failed")
    ]
    new = side("new", verdict_dicts=verdict_rows(loads="failed"))
    assert (
        reason(compared(run_groups.combine(runs), new, numbers=False))
        == "verdicts differ between runs of one side"
    )


def drifting(levels: Sequence[float]) -> run_groups.Side:
    """Return a side with one run at each level."""
    return run_groups.combine(
        [run(f"run-{n}", step_times({"a": times(level)})) for n, level in enumerate(levels)]
    )


LEVELS = (1.0, 1.01, 0.99, 1.02, 0.98)  # their standard deviation is 1.6 %


def test_drift_is_stated_estimated_or_assumed():
    assert run_drift.estimate(drifting(LEVELS), 0.1).usual == pytest.approx(0.1, rel=0.05)
    seen = run_drift.estimate(drifting(LEVELS))
    assert (seen.usual, seen.df) == (pytest.approx(0.0158, rel=0.01), 4)
    assumed = run_drift.estimate(drifting(LEVELS[:4]))
    assert assumed.usual == pytest.approx(math.log1p(run_levels.DRIFT))


def test_drift_of_series_is_used_if_larger_than_of_unit():
    runs = [
        run(f"run-{n}", step_times({"calm": times(), "wild": times(level**3)}))
        for n, level in enumerate(LEVELS)
    ]
    base = run_groups.combine(runs)
    seen = run_drift.estimate(base)
    calm, wild = (seen.of(key, "s") for key in base.series)
    assert calm == pytest.approx(wild / 2**0.5, rel=0.01)


def test_drift_hides_change_that_is_no_larger():
    base, new = judged("base", a=times()), judged("new", a=times(1.1))
    assert reason(gate.compare(base, new)) == "too noisy"
    assert answers(gate.compare(base, judged("new", a=times(3.0)))) == {"a": REGRESSION}
    assert answers(gate.compare(base, new, drift=0.01)) == {"a": REGRESSION}


def test_drift_is_less_for_means_over_runs():
    assert run_drift.of_means(0.05, 1, 1) == 0.05
    assert run_drift.of_means(0.05, 4, 4) == 0.025
    assert answers(gate.compare(drifting([1] * 4), judged("new", a=times(3.0)))) == {
        "a": REGRESSION
    }


BAD = [
    (lambda: compared(side("a"), side("a")), "run 'a' is on two sides"),
    (lambda: compared(side("a"), side("b"), numbers=False), "no test and no number in common"),
    (
        lambda: compared(judged("a", a=times()), judged("b", b=times())),
        "no series of numbers in common: BASE has 1 series, NEW 1",
    ),
    (
        lambda: compared(
            side("a", verdict_dicts=verdict_rows(loads="passed")),
            side("b", step_times({"a": times()}), verdict_rows(loads="passed")),
        ),
        "no series of numbers in common: BASE has 0 series, NEW 1",
    ),
    (
        lambda: run_groups.combine([run("a"), run("b", versions={"tensorflow": "2.15.1"})]),
        "holds runs of different versions",
    ),
    (
        lambda: run_groups.combine([run("a"), run("b", machine={"host": "host-2"})]),
        "holds runs of different machines",
    ),
    (
        lambda: run_groups.combine([run("a"), run("b", spawn="exec")]),
        "holds runs with different conditions: Tasks started by fork → exec",
    ),
    (
        lambda: compared(side("a"), side("b"), side("c", versions={"tensorflow": "2.15.1"})),
        "--confirm: not a second measurement of NEW: versions tensorflow 2.21.0",
    ),
    (
        lambda: compared(side("a"), side("b"), side("c", machine={"host": "host-2"})),
        "--confirm: not a second measurement of NEW: machine host-1",
    ),
    (
        lambda: compared(side("a"), side("b"), side("c", data={"name": "digits"})),
        "--confirm: not a second measurement of NEW: Images MNIST",
    ),
]


MACHINE = INFO["machine"]
OTHERWISE = [
    ({"spawn": "exec"}, "Tasks started by fork → exec"),
    ({"data": {"name": "MNIST", "train": 4096, "test": 10}}, "Images MNIST, 60000 and 10000 → "),
    ({"machine": {**MACHINE, "threads": {"A": 1, "B": None}}}, "threads A=2 → A=1"),
    ({"machine": {**MACHINE, "malloc": "keep"}}, "default → keep"),
    (
        {"machine": {**MACHINE, "malloc": "default", "allocator": {"LD_PRELOAD": "x.so"}}},
        "default → default, LD_PRELOAD=x.so",
    ),
]


@pytest.mark.parametrize(("info", "difference"), OTHERWISE, ids=[row[1] for row in OTHERWISE])
def test_numbers_of_different_conditions_are_not_compared(info: dict[str, Any], difference: str):
    machine = {**MACHINE, "malloc": "default", "threads": {"A": 2}}
    base = side("base", step_times({"a": times()}), machine=machine)
    new = side("new", step_times({"a": times(1.1)}), **info)
    found = reason(compared(base, new))
    assert found.startswith("different conditions: ")
    assert difference in found
    older = side("older", step_times({"a": times(1.1)}))  # it records neither threads nor malloc
    assert answers(compared(base, older)) == {"a": REGRESSION}


@pytest.mark.parametrize(("call", "message"), BAD, ids=[row[1] for row in BAD])
def test_nothing_to_compare_is_an_error(call, message: str):
    with pytest.raises(BadInput, match=message):
        call()


def test_red_test_is_reported_without_common_numbers():
    base = side("base", step_times({"a": times()}), verdict_rows(loads="passed"))
    assert compared(base, side("new", verdict_dicts=verdict_rows(loads="failed"))).exit_code() == 1
