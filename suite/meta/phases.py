"""Pytest sessions that get SIGINT or SIGTERM in a known phase; see test_interrupts.py.

`python -m suite.meta.phases` is one process that imports what a session needs and forks each
session, so that a session costs little. A session marks each of its stops by a file and blocks
there until the signal is sent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from suite.harness.session import run_directory
from suite.meta.forked import SHARED, preload

STOPS, REACHED = "PHASE_STOPS", "PHASE_REACHED"
HANGS_S = 120
INTERRUPT, TERMINATE = (signal.SIGINT,), (signal.SIGTERM,)
TESTS = '''
"""A test that passes, then one for each phase of a run, which blocks in that phase."""
import signal
import pytest
from suite.harness.scenarios import base
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.core.deadlines import wait_until
from suite.meta.phases import HANGS_S, reach

if reach("collection"):
    wait_until("a signal", lambda: False, HANGS_S)

def stand_still(launch, phase, *started):
    with launch(flags=base.endless_work(launch)) as cluster:
        cluster.start(*started)
        cluster.wait_for("spawned" if started else "step", cluster.workers[0])
        if phase == "fault":
            cluster.signal(cluster.workers[1], signal.SIGSTOP, fault="sigstop")
        assert reach(phase)
        cluster.wait_for("no such event")

def endless(launch):
    stand_still(launch, "training")

@pytest.mark.cases
def test_passes(case, record):
    record("steps", 1, "1")

@pytest.mark.cases
def test_forming(launch):
    stand_still(launch, "forming", launch.engine.topology(launch.case.trainer).workers[0])

@scenario(endless)
@pytest.mark.cases
def test_training(outcome):
    pass

@pytest.mark.cases
def test_fault(launch):
    stand_still(launch, "fault")

@pytest.mark.timing
@pytest.mark.cases
def test_timed(launch):
    stand_still(launch, "timed")
'''


@dataclass(frozen=True)
class Session:
    """One session: a test that runs after a passing one, its stops, and the expected result.

    A signal is sent at each stop. Two stops joined by `+` get one signal when both are reached.
    `verdicts` is the number of verdicts that are kept. `workers` runs the session with `-n 2`,
    which takes three processes that import everything. Both signals have one handler, so most
    phases get one of them: SIGINT reaches the whole process group, SIGTERM only pytest.
    """

    test: str
    stops: tuple[str, ...]
    status: str = "interrupted"
    verdicts: int = 1
    workers: bool = False
    signals: tuple[signal.Signals, ...] = INTERRUPT


SESSIONS = {
    "collection": Session("passes", ("collection",), verdicts=0, signals=TERMINATE),
    "forming": Session("forming", ("forming",)),
    "training": Session("training", ("training",), signals=INTERRUPT + TERMINATE),
    "fault": Session("fault", ("fault",), signals=TERMINATE),
    "timed": Session("timed", ("timed",)),
    "writing data": Session("passes", ("data",), "complete"),
    "writing pages": Session("passes", ("pages",), "complete", signals=TERMINATE),
    "twice": Session("training", ("training", "data")),
    "on two": Session("training", ("training+taken",), workers=True),
}


def name_of(phase: str, number: signal.Signals) -> str:
    return f"{phase}-{number.name}".replace(" ", "-")


def reach(stop: str) -> bool:
    """Mark a stop as reached. Return False if the session does not stop there or already did."""
    path = Path(os.environ[REACHED]) / stop
    if stop not in os.environ[STOPS].split() or path.exists():
        return False
    path.touch()
    return True


def run_session(stage: Path, name: str, session: Session) -> int:
    """Run pytest in this process, which was forked for it."""
    import pytest

    from reports.render import markdown
    from reports.rundir import writer
    from suite.harness.core.deadlines import wait_until
    from suite.harness.pytest_plugin.interrupts import Interrupts
    from suite.harness.pytest_plugin.run_record import Recorder
    from suite.harness.session import timing_lock
    from suite.meta.sessions import lock_name

    os.setpgid(0, 0)  # a terminal sends Ctrl-C to all of a process group
    directory = stage / name
    (directory / "temporary").mkdir(parents=True)
    os.environ[STOPS] = " ".join(session.stops).replace("+", " ")
    os.environ[REACHED] = str(directory)
    os.environ["TMPDIR"] = str(directory / "temporary")
    output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    run_directory.RUNS = directory / "runs"
    timing_lock.NAME = lock_name(directory)  # the phase's other session also takes the timing lock

    handlers: list[Interrupts] = []
    install = Interrupts.install

    def remember(handler: Interrupts) -> None:
        handlers.append(handler)
        install(handler)

    def standing(stop: str, function: Any) -> Any:
        def stand(*given: Any) -> Any:
            if reach(stop):
                already = 0 if len(session.stops) == 1 else 1
                received = handlers[0].received
                wait_until("a signal", lambda: len(received) > already, HANGS_S)
            return function(*given)

        return stand

    take = Recorder.take

    def mark(recorder: Recorder, found: Any) -> None:
        take(recorder, found)
        reach("taken")

    patch.object(Recorder, "take", mark).start()
    patch.object(Interrupts, "install", remember).start()
    patch.object(writer, "_parquet", standing("data", writer._parquet)).start()
    patch.object(markdown, "render", standing("pages", markdown.render)).start()
    arguments = ["--rootdir", str(stage), "--basetemp", str(directory / "base"), "-p"]
    arguments += ["no:cacheprovider", "-p", "suite.meta.fake_rows", "-p", "suite.harness.plugin"]
    arguments += ["--trainer", "keras_multi_worker_mirrored", "--keras", "tf_keras"]
    arguments += ["-n", "2"] if session.workers else []
    tests = dict.fromkeys(f"test_phases.py::test_{test}" for test in ("passes", session.test))
    return int(pytest.main([*arguments, *tests]))


def meet(stage: Path, phase: str) -> dict[str, int]:
    """Run a phase's sessions at once, one for each signal. Return their exit codes."""
    from suite.harness.core.deadlines import wait_until

    session = SESSIONS[phase]
    pids = {}
    for number in session.signals:
        pid = os.fork()
        if not pid:
            sys.exit(run_session(stage, name_of(phase, number), session))
        pids[number] = pid
    codes: dict[str, int] = {}

    def ended(number: signal.Signals) -> bool:
        name = name_of(phase, number)
        if name not in codes:
            pid, status = os.waitpid(pids[number], os.WNOHANG)
            if pid:
                codes[name] = os.waitstatus_to_exitcode(status)
        return name in codes

    try:
        for stop in session.stops:
            for number, pid in pids.items():
                markers = [stage / name_of(phase, number) / mark for mark in stop.split("+")]

                def positions(markers: Any = markers, number: Any = number) -> bool:
                    return all(m.exists() for m in markers) or ended(number)

                wait_until(f"{phase} to stand still", positions, HANGS_S)
                if not ended(number):
                    send = os.killpg if number == signal.SIGINT else os.kill
                    send(pid, number)
        for number in pids:
            wait_until(f"{phase} to end", lambda n=number: ended(n), HANGS_S)
    finally:
        for number, pid in pids.items():
            if not ended(number):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return codes


def main(phases: Sequence[str]) -> None:
    preload(("suite.meta.fake_rows", *SHARED))  # the fakes replace rows that the plug-in reads
    stage = Path.cwd()
    (stage / "test_phases.py").write_text(TESTS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    codes: dict[str, int] = {}
    for phase in phases or SESSIONS:
        codes.update(meet(stage, phase))
    print(json.dumps(codes))


if __name__ == "__main__":
    main(sys.argv[1:])
