"""Define the suite's fixtures: few, thin, and named by nouns. Plain classes do the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from suite.harness.core import outcomes
from suite.harness.core.case import Case
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import (
    CheckFailed,
    DeadlineExceeded,
    HarnessError,
    NotExamined,
    TrainerFailed,
    event_missing,
)
from suite.harness.core.history import Run
from suite.harness.environment.dataset import Dataset
from suite.harness.environment.interpreter import Interpreter
from suite.harness.metrics import interference
from suite.harness.pytest_plugin.options import is_parallel
from suite.harness.scenarios import fault_free
from suite.harness.session.session import ALL_TESTS, SESSION, Launch, Scenario, Session

NOT_OBSERVED = (
    "no Python program of the script was observed: let it keep PYTHONPATH (add to it, start no "
    "`python -E` or `-I`) and train in a program with a file, or say observe = false"
)
MEASURED = pytest.StashKey[list[dict[str, Any]]]()
WATCHED = pytest.StashKey[interference.Watch]()  # if not measured around the test call
RUNS = pytest.StashKey[list[Run]]()
CHARGED = pytest.StashKey[float]()  # seconds added to the phase's own duration


def case_of(item: pytest.Item) -> Case | None:
    """Return the case of a test; None for tests of the harness itself."""
    spec = getattr(item, "callspec", None)
    return spec.params.get("case") if spec else None


def scenario_of(item: pytest.Item) -> Scenario | None:
    """Return the scenario that a test judges; None for a test that starts its own clusters."""
    marker = item.get_closest_marker("scenario")
    if marker is None:
        return fault_free.healthy if "healthy" in getattr(item, "fixturenames", ()) else None
    spec = getattr(item, "callspec", None)
    return spec.params.get("outcome", marker.args[0]) if spec else marker.args[0]


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Session:
    """Return the settings, engine and rows of this pytest process."""
    return request.config.stash[SESSION]


@pytest.fixture(scope="session")
def prefetch(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[pytest.Item], None]:
    """Return `prefetch(item)`: run the scenarios of all tests of this process ahead of them.

    It starts with the first test of a case. Tests of the harness limit this process's files, and
    change its environment and directory, which would affect threads that run scenarios.
    """
    session = request.config.stash[SESSION]
    tmp_path_factory.getbasetemp()  # creates it, which several threads must not do at once
    session.new_directory = tmp_path_factory.mktemp
    begun: set[str] = set()

    def start(item: pytest.Item) -> None:
        group = group_of(item)
        if group is None or group in begun or session.settings.at_once == 1:
            return
        begun.add(group)
        own = (i for i in request.session.items if group_of(i) == group)
        needed = (needed_scenario(i, session) for i in own)
        ahead = [both for both in needed if both and not runs_alone(both[1])]
        session.ahead.begin(partial(session.outcome, *both) for both in ahead)

    return start


def group_of(item: pytest.Item) -> str | None:
    """Return the group of tests that must run in one process; None if there is no such group.

    Without -n all tests are one group; with it the groups are those that --dist loadgroup keeps
    together.
    """
    if not is_parallel(item.config):
        return ""
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker and item.config.option.loadgroup else None


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """Return the trainer, backend and Keras flavor under test; see `pytest.mark.cases`."""
    request.getfixturevalue("prefetch")(request.node)
    return request.param


@pytest.fixture
def deadlines(session: Session) -> Deadlines:
    """Return all deadlines, already scaled."""
    return session.engine.deadlines


@pytest.fixture
def dataset(session: Session) -> Dataset:
    """Return the data of this run, the default of every trainer."""
    return session.dataset


def runs_alone(scene: Scenario) -> bool:
    """Return True if no other cluster may run with this scenario, which would affect it."""
    return getattr(scene, "alone", False)


def needed_scenario(item: pytest.Item, session: Session) -> tuple[Case, Scenario] | None:
    """Return the case and the scenario with which this test starts, if it has any."""
    case, scene = case_of(item), scenario_of(item)
    if case is None or scene is None:
        return None
    return case, fault_free.healthy if is_hopeless(item, session, case) else scene


@pytest.fixture
def outcome(request: pytest.FixtureRequest, session: Session, case: Case) -> Any:
    """Return the outcome of the test's scenario (`pytest.mark.scenario`) for this case."""
    scene = scenario_of(request.node)
    if scene is None:
        raise pytest.UsageError(f"{request.node.nodeid} needs @scenario")
    return outcome_for(request.node, session, case, scene)


@pytest.fixture
def healthy(request: pytest.FixtureRequest, session: Session, case: Case) -> Run:
    """Return a fault-free run of the case, shared by all checks that can read it."""
    return outcome_for(request.node, session, case, fault_free.healthy)


def outcome_for(item: pytest.Item, session: Session, case: Case, scene: Scenario) -> Any:
    """Return the scenario's outcome, and keep its runs for the diagnosis of a failing test."""
    settle(item, session, case)
    if case.trainer.of_user:
        run = _outcome(item, session, case, fault_free.healthy)
        must_use_interpreter(run, session.interpreter)
        must_be_observable(item, run)
    came = _outcome(item, session, case, scene)
    item.stash.setdefault(RUNS, []).extend(outcomes.runs_of(came))
    for run in outcomes.runs_of(came):
        must_be_observed(item, run)
    return came


def needed_events(item: pytest.Item) -> tuple[str, ...]:
    """Return the events without which a test cannot judge."""
    marker = item.get_closest_marker("cases")
    return tuple(marker.kwargs.get("events", ())) if marker else ()


def must_be_observable(item: pytest.Item, run: Run) -> None:
    """Raise NotExamined if a fault-free run of a user's program has no event of a needed kind.

    Or none at all: the observer did not get into a Python program that a script started.
    """
    if run.trainer.observed and not run.of("started"):
        raise NotExamined(NOT_OBSERVED)
    for event in needed_events(item):
        if event != "restored" and not run.of(event):  # that one takes a second run
            raise event_missing(event)


def must_use_interpreter(run: Run, interpreter: Interpreter) -> None:
    """Raise HarnessError if a script has started another Python, or another TensorFlow.

    Verdicts would be recorded for the wrong versions.
    """
    for started in run.of("started") if not run.trainer.python else ():
        found = f"Python {started['python']} with TensorFlow {started['tensorflow']}"
        wanted = f"Python {interpreter.python_version} with TensorFlow {interpreter.tensorflow}"
        if found != wanted:
            raise HarnessError(
                f"the script started {found} in {started.task}, but {wanted} is under test: let it "
                "call `python`, which is that one, or name the other by --python"
            )


def must_be_observed(item: pytest.Item, run: Run) -> None:
    """Raise HarnessError if the test needs events and a hook of the observer failed."""
    failed = failed_hook(run) if needed_events(item) else ""
    if failed:
        raise HarnessError(failed)


def failed_hook(run: Run) -> str:
    """Return the first hook of the observer that failed in the run, with its error; "" if none."""
    for failed in run.of("hook_failed"):
        return f"the observer's hook {failed['hook']} failed in {failed.task}: {failed['error']}"
    return ""


def blamed(item: pytest.Item, error: BaseException | None) -> BaseException | None:
    """Return the error of a test, as a HarnessError if a hook failed in one of its runs.

    What a check misses may be what the observer did not write.
    """
    return _doubted(item, failed_hook, error) if isinstance(error, CheckFailed) else error


def unseen(item: pytest.Item, error: BaseException | None) -> BaseException | None:
    """Return the error of a red test, as a HarnessError if the observer lacks a function.

    A later TensorFlow or Keras may have moved the function. Events are missing then, which is no
    failure of a trainer. If a task ended in a failure, that remains the reason.
    """
    crashed = isinstance(error, TrainerFailed) and not isinstance(error, DeadlineExceeded)
    if error is None or crashed or isinstance(error, HarnessError):
        return error
    return _doubted(item, lacking_hooks, error)


def lacking_hooks(run: Run) -> str:
    """Return which functions the observer of a task does not find; "" if it finds all."""
    for event in run.of("observing"):
        if event["missing"]:
            return f"the observer does not find {', '.join(event['missing'])} in {event.task}"
    return ""


def _doubted(item: pytest.Item, doubt: Callable[[Run], str], error: BaseException) -> BaseException:
    """Return the error as a HarnessError if there is a doubt about a run of the test."""
    for found in filter(None, map(doubt, item.stash.get(RUNS, []))):
        return HarnessError(f"{found}; so this may be wrong: {error}")
    return error


def _outcome(item: pytest.Item, session: Session, case: Case, scene: Scenario) -> Any:
    """Return the outcome, and charge the scenario's time to the first test that asks for it.

    That replaces the time for which this test waits: most scenarios run ahead, in other threads.
    """
    if runs_alone(scene):
        wait_for_others(item, session)
    began_s = time.monotonic()
    try:
        return session.outcome(case, scene)
    finally:
        timing = session.timings.get((case.id, scene))
        if timing:
            charge(item, timing.charge() - (time.monotonic() - began_s))


def wait_for_others(item: pytest.Item, session: Session) -> None:
    """Wait for the scenarios of other tests, at their expense."""
    began_s = time.monotonic()
    session.ahead.finish()
    charge(item, began_s - time.monotonic())


def charge(item: pytest.Item, seconds: float) -> None:
    """Add seconds to the duration of the test's current phase; a negative number subtracts."""
    item.stash[CHARGED] = item.stash.get(CHARGED, 0.0) + seconds


def settle(item: pytest.Item, session: Session, case: Case) -> None:
    """Run `healthy` once to confirm that an approach does not work at all, for all of its tests."""
    if is_hopeless(item, session, case):
        _outcome(item, session, case, fault_free.healthy)


def scenario_name(item: pytest.Item) -> str:
    """Return the name of the scenario that a test judges, "" for none."""
    return getattr(scenario_of(item), "__name__", "")


def is_hopeless(item: pytest.Item, session: Session, case: Case) -> bool:
    """Return True if expectations.toml says that this approach does not work here at all."""
    row = session.expectation(case, getattr(item, "originalname", item.name))
    return row is not None and row.test == ALL_TESTS


@pytest.fixture
def launch(
    request: pytest.FixtureRequest,
    session: Session,
    case: Case,
    tmp_path: Path,
) -> Launch:
    """Return a launcher of clusters for this test only.

    A timed test first waits until other tests' scenarios have ended.
    """
    settle(request.node, session, case)
    if request.node.get_closest_marker("timing"):
        wait_for_others(request.node, session)
    name, function = request.node.originalname, request.node.function
    return Launch(session, case, tmp_path, name, function)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return `record(metric, value, unit, better="none", **columns)`: adds a `measurements` row."""
    rows = request.node.stash.setdefault(MEASURED, [])

    def add(metric: str, value: float, unit: str, better: str = "none", **columns: Any) -> None:
        row = {"metric": metric, "value": float(value), "unit": unit, "better": better, **columns}
        from reports.rundir import frame  # imports pandas, so only tests that measure wait for it

        frame.measurement_row(test=request.node.name, **row)  # a bad row fails its own test
        rows.append(row)

    return add
