"""The suite's fixtures: nouns, few, and thin; the work is done in plain classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from suite.harness import machine, scenarios, staging
from suite.harness.cases import Case
from suite.harness.data import Dataset
from suite.harness.options import is_parallel
from suite.harness.run import Run
from suite.harness.session import ALL_TESTS, SESSION, Launch, Scene, Session
from suite.harness.waiting import Deadlines

MEASURED = pytest.StashKey[list[dict[str, Any]]]()
WATCHED = pytest.StashKey[machine.Watch]()  # where it was not while the test itself ran
RUNS = pytest.StashKey[list[Run]]()


def case_of(item: pytest.Item) -> Case | None:
    """The case of a test; None for tests of the harness itself."""
    spec = getattr(item, "callspec", None)
    return spec.params.get("case") if spec else None


def scene_of(item: pytest.Item) -> Scene | None:
    """The scenario that a test judges; None for one that starts clusters of its own."""
    marker = item.get_closest_marker("plays")
    if marker is None:
        return scenarios.healthy if "healthy" in getattr(item, "fixturenames", ()) else None
    spec = getattr(item, "callspec", None)
    return spec.params.get("played", marker.args[0]) if spec else marker.args[0]


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Session:
    """Settings, engine and rows of this pytest process."""
    return request.config.stash[SESSION]


@pytest.fixture(scope="session")
def playing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Plays the scenarios of all tests ahead of them, where this is the only pytest process.

    From the first test of a case on: tests of the harness limit this process's files, change its
    environment and its directory, and threads that play would meet that.
    """
    session = request.config.stash[SESSION]
    tmp_path_factory.getbasetemp()  # makes it, which several threads must not do at once
    session.new_directory = tmp_path_factory.mktemp
    if session.settings.at_once > 1 and not is_parallel(request.config):
        needed = (scene_needed(item, session) for item in request.session.items)
        session.ahead.begin(partial(session.outcome, *both) for both in needed if both)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The trainer, backend and Keras flavour under test; see `pytest.mark.cases`."""
    request.getfixturevalue("playing")
    return request.param


@pytest.fixture
def deadlines(session: Session) -> Deadlines:
    """All deadlines, already scaled."""
    return session.engine.deadlines


@pytest.fixture
def dataset(session: Session) -> Dataset:
    """The data of this run; every trainer gets it unless a test says otherwise."""
    return session.dataset


def scene_needed(item: pytest.Item, session: Session) -> tuple[Case, Scene] | None:
    """The case and the scenario with which this test begins, if it has any."""
    case, scene = case_of(item), scene_of(item)
    if case is None or scene is None:
        return None
    return case, scenarios.healthy if is_hopeless(item, session, case) else scene


@pytest.fixture
def played(request: pytest.FixtureRequest, session: Session, case: Case) -> Any:
    """What the test's scenario (`pytest.mark.plays`) came to for this case."""
    scene = scene_of(request.node)
    if scene is None:
        raise pytest.UsageError(f"{request.node.nodeid} needs @plays")
    return outcome(request.node, session, case, scene)


@pytest.fixture
def healthy(request: pytest.FixtureRequest, session: Session, case: Case) -> Run:
    """An undisturbed run of the case, shared by all checks that can read it."""
    return outcome(request.node, session, case, scenarios.healthy)


def outcome(item: pytest.Item, session: Session, case: Case, scene: Scene) -> Any:
    """The scenario's outcome; its runs are told in the test's diagnosis, should it fail."""
    settle(item, session, case)
    came = session.outcome(case, scene)
    item.stash.setdefault(RUNS, []).extend(staging.runs_of(came))
    return came


def settle(item: pytest.Item, session: Session, case: Case) -> None:
    """Where nothing of an approach works, one real run confirms it for all of its tests."""
    if is_hopeless(item, session, case):
        session.outcome(case, scenarios.healthy)


def scene_name(item: pytest.Item) -> str:
    """The name of the scenario that a test judges, "" for none."""
    return getattr(scene_of(item), "__name__", "")


def is_hopeless(item: pytest.Item, session: Session, case: Case) -> bool:
    """Whether a row of expectations.toml says that this approach does not work here at all."""
    row = session.expectation(case, getattr(item, "originalname", item.name))
    return row is not None and row.test == ALL_TESTS


@pytest.fixture
def launch(
    request: pytest.FixtureRequest,
    session: Session,
    case: Case,
    tmp_path: Path,
) -> Launch:
    """Clusters of the case for this test alone; where it measures, there are no others."""
    settle(request.node, session, case)
    if request.node.get_closest_marker("timing"):
        session.ahead.finish()
    return Launch(session, case, tmp_path, request.node.originalname)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`record(metric, value, unit, better="none", **columns)`: one row of `measurements`."""
    rows = request.node.stash.setdefault(MEASURED, [])

    def add(metric: str, value: float, unit: str, better: str = "none", **columns: Any) -> None:
        row = {"metric": metric, "value": float(value), "unit": unit, "better": better, **columns}
        from reports import frame  # with pandas, which only what measures has to wait for

        frame.measurement_row(test=request.node.name, **row)  # a bad row fails its own test
        rows.append(row)

    return add
