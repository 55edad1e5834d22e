"""Tests of a session's shared state: outcomes by function, and scenario times by test."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reference_trainers import BY_NAME
from suite.harness import plugin
from suite.harness.core.case import Case
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import CheckFailed
from suite.harness.core.paths import ROOT
from suite.harness.session.session import Session, Timing
from suite.meta.sessions import listed

CASE = Case(BY_NAME["single_process"], "none", "tf_keras")


@pytest.fixture
def session(tmp_path) -> Session:
    settings: Any = SimpleNamespace(at_once=1)
    engine: Any = SimpleNamespace(deadlines=Deadlines())
    made = Session(settings, None, engine, *[None] * 3)  # type: ignore[arg-type]
    made.new_directory = lambda _: tmp_path
    return made


def scenario(outcome: object) -> Any:
    def same_name(_: Any) -> object:
        return outcome

    return same_name


def test_outcomes_belong_to_functions_and_not_to_names(session: Session):
    one, other = scenario("one"), scenario("other")
    assert session.outcome(CASE, one) == "one"
    assert session.outcome(CASE, other) == "other"
    assert session.outcome(CASE, one) == "one"
    assert len(session.timings) == 2


def test_a_scenario_that_fails_has_a_time_as_well(session: Session):
    def fails(_: Any) -> None:
        raise CheckFailed("no")

    with pytest.raises(CheckFailed):
        session.outcome(CASE, fails)
    assert session.timings[CASE.id, fails].took_s > 0


def test_a_scenario_knows_the_scenarios_that_it_needs(session: Session):
    inner = scenario("inner")

    def outer(launch: Any) -> Any:
        return launch.outcome(inner)

    assert session.outcome(CASE, outer) == "inner"
    timing, needed = session.timings[CASE.id, outer], session.timings[CASE.id, inner]
    assert timing.needs == [needed]
    assert needed.took_s <= timing.waited_s <= timing.took_s
    assert timing.start <= needed.start


def both() -> tuple[Timing, Timing]:
    """Return timings of a 5 s scenario that waits 2 s for another, and of that one of 3 s."""
    inner = Timing("inner", took_s=3.0)
    return Timing("outer", took_s=5.0, waited_s=2.0, needs=[inner]), inner


def test_the_first_test_is_charged_with_all_that_it_needs():
    outer, inner = both()
    assert (outer.charge(), outer.charge(), inner.charge()) == (6.0, 0.0, 0.0)


def test_no_second_is_charged_twice():
    outer, inner = both()
    assert (inner.charge(), outer.charge(), inner.charge()) == (3.0, 3.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        (["suite/"], True),
        (["suite/conformance", "suite"], True),
        (["suite/meta"], False),
        (["suite/", "suite/meta/test_rooms.py"], False),
        (["suite/meta/test_rooms.py::test_x"], False),
    ],
)
def test_main_job_leaves_out_the_tests_of_the_harness(arguments: list[str], left_out: bool):
    config: Any = SimpleNamespace(args=arguments, invocation_params=SimpleNamespace(dir=ROOT))
    for name, ignored in (
        ("meta/test_rooms.py", left_out or None),
        ("meta/test_self_check.py", None),
        ("meta/conftest.py", None),
        ("conformance/test_startup.py", None),
    ):
        assert plugin.pytest_ignore_collect(ROOT / "suite" / name, config) == ignored


def test_benchmarks_come_last(plugin_stage: Path):
    """The command line names them first."""
    named = ["benchmarks/test_documents", "faults/test_chief_loss", "conformance/test_startup"]
    found = listed(plugin_stage, "order", [f"suite/{name}.py" for name in named])
    folders = [folder for folder, _ in groupby(test.split("/")[1] for test, _ in found)]
    assert folders == ["conformance", "faults", "benchmarks"]


def test_every_deadline_is_scaled():
    usual = asdict(Deadlines())
    assert asdict(Deadlines().scaled(3.0)) == {name: 3.0 * usual[name] for name in usual}
