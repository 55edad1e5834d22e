"""The controlling process: gathers what tests found, writes the run directory, sums it up."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from suite.harness import leaks, recording, verdicts
from suite.harness.recording import Recorder
from suite.harness.reporting import CARRIED
from suite.harness.session import Session
from suite.harness.waiting import wait_until

if TYPE_CHECKING:
    from reports.frame import RunFrames

WIDTH_WITHOUT_TERMINAL = 100
CANNOT_WRITE = 4
DISK_FULL = "No space left on device"


class Controller:
    """A plug-in of its own, registered where all reports arrive."""

    def __init__(self, config: pytest.Config, session: Session, recorder: Recorder) -> None:
        self.config = config
        self.session = session
        self.recorder = recorder
        self.written: RunFrames | None = None
        self.problem = ""
        self.exit_code = 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.pytest_session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        carried = getattr(report, CARRIED, None)
        if not carried:
            return
        self.recorder.take(carried)
        row = carried["row"]
        # Not in the diagnosis: a task says it too, when its own disk was filled on purpose.
        if row["verdict"] == verdicts.HARNESS_ERROR and DISK_FULL in row["reason"]:
            # Every test after this one would fail of the same, and the report could not be written.
            self.problem = "the disk is full: no report; free some space, or name another --run-dir"
            self.exit_code = CANNOT_WRITE
            self.pytest_session.shouldstop = self.problem

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ARG002
        self.recorder.leaks += getattr(node, "workeroutput", {}).get("leaks", [])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Any:
        """After everything has ended: look for leaks, then write; a leak or a full disk is red."""
        outcome = yield
        error = outcome.excinfo and outcome.excinfo[1]
        if isinstance(error, OSError):  # junit.xml is written by another plug-in, just before
            self.problem = self.problem or f"the run could not be written: {error}"
            self.exit_code = CANNOT_WRITE
            outcome.force_result([])
        if self.config.option.collectonly or not self.recorder.by_test:
            return
        self.recorder.leaks += self._left_behind()
        if self.recorder.leaks and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
        if exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
            self.problem = "interrupted: no report, and no run.json, which would make it whole"
        if self.problem:
            session.exitstatus = self.exit_code or exitstatus
            return
        # With pandas and SciPy, which take a second to import: only where a report is written.
        from reports import store

        try:
            self.written = store.write(
                self.recorder.directory,
                self._run_info(int(exitstatus)),
                self.recorder.measurements,
                self.recorder.verdicts,
            )
        except OSError as error:
            self.problem = f"the run could not be written: {error}"
            session.exitstatus = CANNOT_WRITE

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        for leak in self.recorder.leaks:
            write(f"left behind: {leak}", red=True)
        if self.problem:
            write(self.problem, red=True)
        if self.written is None:
            return
        if self.config.option.dist != "no":
            write("several processes shared this machine (-n): no timings were taken")
        from reports import terminal

        width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
        write("")
        terminal.summary(self.written, Console(file=sys.stdout, width=width))

    def _left_behind(self) -> list[str]:
        """Processes of this session that live on; what is just ending gets a moment."""
        identity = self.session.engine.session
        try:
            wait_until("all processes", lambda: not leaks.processes(identity), 2.0, 0.1)
        except TimeoutError:
            return leaks.processes(identity)
        return []

    def _run_info(self, exit_code: int) -> dict[str, Any]:
        session = self.session
        engine, dataset = session.engine, session.dataset
        return {
            "run_id": self.recorder.run_id,
            "command": recording.command_line(self.config.invocation_params.args),
            "start": self.recorder.start,
            "end": recording.now(),
            "seed": session.settings.seed,
            "versions": recording.versions(session.interpreter),
            "machine": {
                **recording.machine(self.recorder.load_1m, session.settings),
                "disk_free_gib": free_gib(self.recorder),
            },
            "git": recording.git(),
            "network": {"kind": engine.network.kind, "reason": engine.network.reason},
            "session": engine.session,
            "spawn": engine.spawn,
            "data": {
                "name": dataset.name,
                "path_name": Path(dataset.path).name,
                "train": dataset.train,
                "test": dataset.test,
                "sha256": dataset.sha256,
            },
            "deadline_scale": session.settings.deadline_scale,
            "xdist_workers": int(getattr(self.config.option, "numprocesses", None) or 0),
            "leaks": self.recorder.leaks,
            "quarantined": [],
            "retries": 0,
            "exit_code": exit_code,
        }


def free_gib(recorder: Recorder) -> float:
    return round(shutil.disk_usage(recorder.directory).free / 2**30, 1)
