"""Connect the suite to pytest: options in, cases for tests, verdicts and measurements out.

Order of a session: check the request, find interpreter, data and network, start importing
TensorFlow, collect, run, end all processes, look for leaks, write the run directory, print the
summary.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from reports.core.text import plural
from suite.harness.ab import sides
from suite.harness.cluster import leaks
from suite.harness.core.errors import BadInput
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import TAKEN_IN_BY
from suite.harness.metrics import interference
from suite.harness.pytest_plugin import options, verdict_hooks, vocabulary
from suite.harness.pytest_plugin.fixtures import *  # noqa: F403 - pytest finds fixtures in a plug-in's namespace
from suite.harness.pytest_plugin.fixtures import (
    WATCHED,
    case_of,
    group_of,
    scenario_name,
    scenario_of,
)
from suite.harness.pytest_plugin.interrupts import Interrupts
from suite.harness.pytest_plugin.options import is_parallel, is_worker
from suite.harness.pytest_plugin.parametrization import Needs, is_about_tensorflow, select
from suite.harness.pytest_plugin.progress import Progress
from suite.harness.pytest_plugin.run_directory_plugin import Controller
from suite.harness.pytest_plugin.run_record import Recorder
from suite.harness.session import setup
from suite.harness.session.session import NOT_EXAMINED, SESSION, Scenario, Session

META = ROOT / "suite" / "meta"
SELF_CHECK = META / "test_self_check.py"
BENCHMARKS = ROOT / "suite" / "benchmarks"
ORDER = ("meta", "conformance", "faults", "benchmarks")  # timings last, after all imports
MARKERS = (
    "claim(*ids): the promises of claims.toml that this test can refute",
    "cases(events, flags, families, distributed, synchronous, aggregates, fit, backends): of rows",
    "scenario(*functions): `outcome` is what the scenario came to; of several, each in its turn",
    "timing: measures; left out when several processes of pytest share the machine",
    "paired: measures against --base; left out without it",
    *(f"{m}: left out without {row.flag}: {row.help}" for m, row in TAKEN_IN_BY.items()),
)
# pytest's own options that run no test.
LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan", "cacheshow")
SETTLED = pytest.StashKey[setup.Settled]()
RECORDER = pytest.StashKey[Recorder]()
PROGRESS = pytest.StashKey[Progress]()
HINTS = pytest.StashKey[list[str]]()  # lines to print below the number of collected tests
# pytest's own options that deselect tests, some before collection.
NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")


class Quiet:
    """Pause the progress line while pytest prints about a test.

    This is a separate plug-in.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, Any, None]:
        with self.progress.paused():
            yield

    pytest_runtest_logreport = pytest_runtest_logfinish = pytest_runtest_logstart


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def needs_tensorflow(config: pytest.Config) -> bool:
    """Return True unless only tests of the harness are named.

    Those need neither TensorFlow nor a run directory.
    """
    return not all(_in_meta(config, argument) for argument in config.args)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore tests of the harness itself unless they are named; keep a self-check of seconds."""
    is_test = collection_path.parent == META and collection_path.name.startswith("test_")
    if is_test and collection_path != SELF_CHECK:
        return not any(_in_meta(config, argument) for argument in config.args) or None
    return None


def only_lists(config: pytest.Config) -> bool:
    """Return True if tests are only listed, as every IDE does to find them."""
    return any(getattr(config.option, name, None) for name in LISTING)


def _in_meta(config: pytest.Config, argument: str) -> bool:
    path = config.invocation_params.dir / argument.split("::")[0]
    return path.resolve().is_relative_to(META)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    if is_worker(config):
        # A worker of pytest-xdist reads --dist from the command line, which seldom has it.
        config.option.loadgroup = config.workerinput["loadgroup"]  # type: ignore[attr-defined]
        carried = config.workerinput["tf_distribute_conformance"]  # type: ignore[attr-defined]
        if carried is not None:
            settled = setup.Settled(**carried)
            prefix = config.workerinput["workerid"] + "-"  # type: ignore[attr-defined]
            processes = config.workerinput["workercount"]  # type: ignore[attr-defined]
            config.stash[SESSION] = setup.build(settled, Progress(), prefix, processes)
        return
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadgroup"  # tests that share a run must run in one process
    if config.option.help or config.option.markers or not needs_tensorflow(config):
        return
    interrupts = Interrupts()
    interrupts.install()
    config.add_cleanup(interrupts.restore)
    try:
        settings = options.read(config.option)
        settings = replace(settings, full=settings.full or only_benchmarks(config))
        own = (*settings.base_env, *settings.new_env)
        sides.check(settings.base, settings.deadline_scale, own)
        settled = setup.settle(settings, runs=not only_lists(config), at_end=config.add_cleanup)
        if settings.shared_dir and not config.option.basetemp:
            # Every node sees the scenarios' directories.
            config.option.basetemp = str(Path(settings.shared_dir) / f"tfdc-{settled.session}")
        progress = Progress()
        session = setup.build(settled, progress)
        if not only_lists(config):
            session.engine.prepare()
        vocabulary.check_rows(session.claims)
    except BadInput as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[SESSION] = session
    if only_lists(config):
        return
    config.stash[SETTLED] = settled
    config.stash[PROGRESS] = progress
    recorder = config.stash[RECORDER] = Recorder(Path(settled.directory))
    config.pluginmanager.register(Quiet(progress))
    config.pluginmanager.register(Controller(config, session, recorder, interrupts))
    if not config.option.xmlpath:
        config.option.xmlpath = str(Path(settled.directory) / "junit.xml")


def pytest_configure_node(node: Any) -> None:
    """Pass the settled session to a worker of pytest-xdist."""
    settled = node.config.stash.get(SETTLED, None)
    node.workerinput["tf_distribute_conformance"] = settled and asdict(settled)
    node.workerinput["loadgroup"] = node.config.option.dist == "loadgroup"


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if SETTLED in config.stash and not is_parallel(config):
        # pytest redirects descriptor 1 while a test runs. The copy keeps the current target.
        config.stash[PROGRESS].open(os.fdopen(os.dup(1), "w"))
        if not config.stash[SESSION].settings.base:  # each side starts its own processes
            config.stash[SESSION].engine.warm(*config.stash[SESSION].engine.flavors)


def pytest_report_header(config: pytest.Config) -> list[str]:
    session = config.stash.get(SESSION, None)
    return setup.header(session, runs=not only_lists(config)) if session else []


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return config.stash.get(HINTS, [])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    session = metafunc.config.stash.get(SESSION, None)
    scenes = scenes_of(metafunc.definition, session)
    if len(scenes) > 1 or is_open(metafunc.definition):
        parameters = [
            pytest.param(
                s, id=s.__name__, marks=[getattr(pytest.mark, m) for m in getattr(s, "marks", ())]
            )
            for s in scenes
        ]
        metafunc.parametrize("outcome", parameters, indirect=True)
    if "case" not in metafunc.fixturenames:
        return
    if session and metafunc.definition.get_closest_marker("paired"):
        metafunc.parametrize("time", range(1, session.settings.times + 1))
    marker = metafunc.definition.get_closest_marker("cases")
    if session is None or marker is None:
        raise pytest.UsageError(f"{metafunc.definition.nodeid} needs @pytest.mark.cases")
    try:
        needs = Needs.read(metafunc.definition.nodeid, marker.kwargs, session.claims)
    except BadInput as error:
        raise pytest.UsageError(str(error)) from error
    cases = select(needs, session.settings, session.engine.flavors, session.rows)
    note_not_examined(metafunc, needs, session)
    if metafunc.definition.get_closest_marker("paired") and session.settings.base:
        cases, reasons = sides.comparable(session.settings.base, cases, session.interpreter)
        hints = metafunc.config.stash.setdefault(HINTS, [])
        hints.extend(f"not compared: {reason}" for reason in reasons)
    grouped = [
        pytest.param(c, id=c.id, marks=pytest.mark.xdist_group(f"{c.trainer.name}-{c.keras}"))
        for c in cases
    ]
    # No requested row meets the needs. The test is deselected below, since pytest would report an
    # empty parameter set as a skip.
    nothing = pytest.param(None, id="none")
    metafunc.parametrize("case", grouped or [nothing], indirect=True)


def is_open(item: pytest.Item) -> bool:
    """Return True if the number of a test's scenarios depends on the files that are there."""
    marker = item.get_closest_marker("scenario")
    return marker is not None and hasattr(marker.args[0], "each")


def scenes_of(item: pytest.Item, session: Session | None) -> list[Scenario]:
    """Return the scenarios of a test; without files, the one that represents those of the files."""
    marker = item.get_closest_marker("scenario")
    if marker is None:
        return []
    if is_open(item) and session is not None and session.settings.artifacts:
        return marker.args[0].each(session) or list(marker.args)
    return list(marker.args)


def note_not_examined(metafunc: pytest.Metafunc, needs: Needs, session: Session) -> None:
    """Note the programs of users that this test is about but cannot examine, with the reason."""
    scenario = metafunc.definition.get_closest_marker("scenario")
    if scenario and is_about_tensorflow(scenario.args[0]):
        return
    for program in session.programs:
        row = program.row
        lacking = needs.lacking(row) if needs.apply_to(row) else ""
        if lacking:
            test = metafunc.definition.nodeid
            entry = {"test": test, "trainer": row.name, "reason": lacking}
            metafunc.config.stash.setdefault(NOT_EXAMINED, []).append(entry)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_worker(config) and config.option.loadgroup:
        _name_groups(items)
    session = config.stash.get(SESSION, None)
    if session is None:
        return
    left_out = [i for i in items if _left_out(config, i)]
    items[:] = sorted((i for i in items if i not in set(left_out)), key=_place)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        config.stash.setdefault(HINTS, []).extend(_options_for(config, items, left_out))
    try:
        session.claims.check(
            c for i in items for mark in i.iter_markers("claim") for c in mark.args
        )
    except BadInput as error:
        raise pytest.UsageError(str(error)) from error
    if is_whole(config):
        every = [*items, *left_out]
        names = {getattr(i, "originalname", i.name) for i in every}
        scenes = {scenario_name(i) for i in every}
        open_tests = {getattr(i, "originalname", i.name) for i in every if is_open(i)}
        stale = session.expectations.check_against(names, scenes=scenes, open_tests=open_tests)
        if stale:
            raise pytest.UsageError("; ".join(stale))


def _name_groups(items: list[pytest.Item]) -> None:
    """Append the group of each test to its node id, where the scheduler of pytest-xdist reads it.

    pytest-xdist 3.8 writes it to an attribute that pytest 9.2 no longer has, so that each process
    would run the scenarios of all groups: https://github.com/pytest-dev/pytest-xdist/issues/1386
    """
    for item in items:
        group, node_id = group_of(item), getattr(item, "_id", None)
        if group and node_id is not None and not item.nodeid.endswith(f"@{group}"):
            item._id = type(node_id).parse(f"{item.nodeid}@{group}")  # type: ignore[attr-defined]


def is_whole(config: pytest.Config) -> bool:
    """Return True if all tests were collected, so that any name not among them does not exist."""
    narrowed = any(config.getoption(name, None) for name in NARROWING)
    return [a.rstrip("/") for a in config.args] == ["suite"] and not narrowed


def _left_out(config: pytest.Config, item: pytest.Item) -> bool:
    case, scene = case_of(item), scenario_of(item)
    return bool(
        # A scenario may apply to some cases only, such as a check of a document's printed output.
        (case and not getattr(scene, "means", bool)(case))
        or ("case" in getattr(item, "fixturenames", ()) and case is None)
        or _missing_marks(config, item)
        or (item.get_closest_marker("timing") and is_parallel(config))
        or (item.get_closest_marker("paired") and not config.stash[SESSION].settings.base)
    )


def _missing_marks(config: pytest.Config, item: pytest.Item) -> list[str]:
    """Return the marks of a test whose options were not given."""
    settings = config.stash[SESSION].settings
    return [m for m in TAKEN_IN_BY if item.get_closest_marker(m) and not settings.takes_in(m)]


def _options_for(
    config: pytest.Config, kept: Sequence[pytest.Item], left_out: Sequence[pytest.Item]
) -> Iterator[str]:
    """Yield a hint for each option that would add tests that were probably wanted.

    That is so if -m names their mark, or if no other test was selected.
    """
    missing = Counter(mark for item in left_out for mark in _missing_marks(config, item))
    for mark, count in missing.items():
        if not kept or re.search(rf"\b{mark}\b", config.option.markexpr):
            yield f"left out: {plural(count, 'test')} marked {mark}; add {TAKEN_IN_BY[mark].flag}"


def only_benchmarks(config: pytest.Config) -> bool:
    """Return True if the command line names only benchmarks."""
    directory = config.invocation_params.dir
    named = [(directory / argument.split("::")[0]).resolve() for argument in config.args]
    return all(p.is_relative_to(BENCHMARKS) for p in named)


def _place(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, None]:
    """Wait for timings of other runs on this machine, once the test is ready to be timed."""
    outcome = yield
    if item.get_closest_marker("timing") and outcome.excinfo is None:
        config = item.config
        config.stash[SESSION].timing_lock.acquire(config.stash[PROGRESS].announce)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if item.get_closest_marker("timing"):
        item.config.stash[SESSION].timing_lock.release()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Record CPU interference (steal, other processes) for every timed test."""
    if not item.get_closest_marker("timing"):
        yield
        return
    with interference.Watch(alone=item.config.stash[SESSION].timing_lock.held) as watch:
        yield
    verdict_hooks.add_state(item, item.stash.get(WATCHED, watch))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, None]:
    outcome = yield
    verdict_hooks.judge(item, call, outcome.get_result())


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str] | None:
    return verdict_hooks.status(report) if isinstance(report, pytest.TestReport) else None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End all processes that this process started; a worker reports its leaks to the controller."""
    held = session.config.stash.get(SESSION, None)
    if held is None:
        return
    directories = [zygote.directory for zygote in held.engine.zygotes.values()]
    held.ahead.cancel()
    held.engine.stop()
    held.ahead.join()
    left = [*leaks.directories(directories), *held.engine.left]
    if PROGRESS in session.config.stash:
        session.config.stash[PROGRESS].close()
    if is_worker(session.config):
        output = session.config.workeroutput  # type: ignore[attr-defined]
        output |= {"leaks": left, "zygote_restarts": held.engine.restarts}
        output["not_examined"] = session.config.stash.get(NOT_EXAMINED, [])
    elif RECORDER in session.config.stash:
        session.config.stash[RECORDER].leaks += left
        session.config.stash[RECORDER].zygote_restarts += held.engine.restarts
