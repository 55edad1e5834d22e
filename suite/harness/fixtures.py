"""The suite's fixtures: nouns, few, and thin; the work is done in plain classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.harness import scenarios
from suite.harness.cases import Case
from suite.harness.data import Dataset
from suite.harness.run import Run
from suite.harness.session import ALL_TESTS, SESSION, Launch, Session
from suite.harness.waiting import Deadlines

MEASURED = pytest.StashKey[list[dict[str, Any]]]()
RUNS = pytest.StashKey[list[Run]]()


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Session:
    """Settings, engine and rows of this pytest process."""
    return request.config.stash[SESSION]


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The trainer, backend and Keras flavour under test; see `pytest.mark.cases`."""
    return request.param


@pytest.fixture
def deadlines(session: Session) -> Deadlines:
    """All deadlines, already scaled."""
    return session.engine.deadlines


@pytest.fixture
def dataset(session: Session) -> Dataset:
    """The data of this run; every trainer gets it unless a test says otherwise."""
    return session.dataset


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest,
    session: Session,
    case: Case,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Any]:
    """`scenario(function)`: what `function(launch)` gave for this case, run once a process."""

    def shared(function: Callable[..., Any]) -> Any:
        def make() -> Any:
            directory = tmp_path_factory.mktemp(function.__name__, numbered=True)
            return function(Launch(session.engine, case, directory))

        session.engine.test = function.__name__
        outcome = session.shared(case, function.__name__, make)
        request.node.stash.setdefault(RUNS, []).extend(scenarios.runs_of(outcome))
        return outcome

    row = session.expectation(case, request.node.originalname)
    if row is not None and row.test == ALL_TESTS:
        # Nothing of this approach works here; one real run confirms it for all of its tests.
        shared(scenarios.healthy)
    return shared


@pytest.fixture
def healthy(scenario: Callable[..., Any]) -> Run:
    """An undisturbed run of the case, shared by all checks that can read it."""
    return scenario(scenarios.healthy)


@pytest.fixture
def launch(
    request: pytest.FixtureRequest,
    session: Session,
    case: Case,
    scenario: Callable[..., Any],  # noqa: ARG001 - settles whether the approach works at all
    tmp_path: Path,
) -> Launch:
    """Clusters of the case for this test alone."""
    session.engine.test = request.node.originalname
    return Launch(session.engine, case, tmp_path)


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
