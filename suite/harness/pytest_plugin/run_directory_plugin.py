"""Collect the results in the controlling process, write the run directory, print the summary."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from reports.core import text, verdicts
from reports.render import pages
from suite.harness.cluster import leaks
from suite.harness.core import timestamps
from suite.harness.core.deadlines import wait_until
from suite.harness.pytest_plugin import provenance
from suite.harness.pytest_plugin.interrupts import Interrupts
from suite.harness.pytest_plugin.run_record import Recorder
from suite.harness.pytest_plugin.verdict_hooks import CARRIED, refer_to_first, summarize_in_one_line
from suite.harness.session import run_directory
from suite.harness.session.session import NOT_EXAMINED, Session

if TYPE_CHECKING:
    from reports.rundir.frame import RunFrames
    from reports.sections.registry import Failures

WIDTH_WITHOUT_TERMINAL = 100
CANNOT_WRITE = 4
DISK_FULL = "No space left on device"


class Controller:
    """Collect all reports in a separate plug-in of the controlling process."""

    def __init__(
        self, config: pytest.Config, session: Session, recorder: Recorder, interrupts: Interrupts
    ) -> None:
        self.config = config
        self.session = session
        self.recorder = recorder
        self.interrupts = interrupts
        self.written: RunFrames | None = None
        self.failures: Failures | None = None  # parts of the pages that could not be rendered
        self.problem = ""
        self.last_line = ""
        self.exit_code = 0
        self.causes: dict[str, str] = {}  # causes of failures, with the first test of each

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.pytest_session = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.interrupts.received:
            # The KeyboardInterrupt was lost on its way, or became the error of this test.
            self.pytest_session.shouldstop = "interrupted"
            return
        refer_to_first(report, self.causes)
        summarize_in_one_line(report)
        carried = getattr(report, CARRIED, None)
        if not carried:
            return
        self.recorder.take(carried)
        row = carried.get("row")
        if row is None:
            return
        # Do not search the diagnosis: a task reports the same error when a fault filled its own
        # disk.
        if row["verdict"] == verdicts.HARNESS_ERROR and DISK_FULL in row["reason"]:
            # Every later test would fail of the same, and the report could not be written.
            self.problem = "the disk is full: no report; free some space, or name another --run-dir"
            self.exit_code = CANNOT_WRITE
            self.pytest_session.shouldstop = self.problem

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ARG002
        output = getattr(node, "workeroutput", {})
        self.recorder.leaks += output.get("leaks", [])
        self.recorder.not_examined += output.get("not_examined", [])
        self.recorder.zygote_restarts += output.get("zygote_restarts", [])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Any:
        """Look for leaks after all processes have ended, then write the run directory.

        A leak or a full disk fails the run. An interrupted run is written as well: its results so
        far, marked as incomplete.
        """
        outcome = yield
        error = outcome.excinfo and outcome.excinfo[1]
        if isinstance(error, OSError):  # another plug-in writes junit.xml just before
            self.problem = self.problem or f"the run could not be written: {error}"
            self.exit_code = CANNOT_WRITE
            outcome.force_result([])
        if isinstance(error, KeyboardInterrupt):  # raised while other plug-ins cleaned up
            outcome.force_result([])
        session.exitstatus = exitstatus = self.interrupts.exit_code(exitstatus)
        examined = self.recorder.by_test or self.recorder.not_examined
        if not examined and not self.interrupts.received:
            return
        try:
            self.recorder.leaks += self._left_behind()
        except KeyboardInterrupt:
            session.exitstatus = exitstatus = self.interrupts.exit_code(exitstatus)
        if self.recorder.leaks and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.problem:
            session.exitstatus = self.exit_code or exitstatus
            return
        self._write(session, int(exitstatus))
        self.interrupts.hold = True  # all is written, so the last lines may be printed

    def _write(self, session: pytest.Session, exit_code: int) -> None:
        """Write data and run.json, then the pages.

        A signal waits for data and run.json. It may interrupt the pages.
        """
        directory = self.recorder.directory
        ended_early = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        interrupted = bool(self.interrupts.received) or exit_code in ended_early
        status = "interrupted" if interrupted else "complete"
        if interrupted:
            count = len(self.recorder.by_test)
            self.last_line = f"interrupted: {text.plural(count, 'verdict')} in {directory}"
        try:
            with self.interrupts.held():
                # This imports pandas and SciPy, which takes a second: import it only where a report
                # is written.
                from reports.rundir import writer

                self.written = writer.write(
                    directory,
                    self._run_info(exit_code, status),
                    self.recorder.measurements,
                    self.recorder.verdicts,
                )
                if not interrupted and not self.session.settings.run_dir:
                    run_directory.point_latest_at(directory)
            self.failures = pages.write_pages(self.written)
        except OSError as error:
            what = "the pages" if self.written else "the run"
            self.problem = f"{what} could not be written: {error}"
            session.exitstatus = CANNOT_WRITE
        except KeyboardInterrupt:
            self.last_line = (
                f"interrupted while the pages were written: {status} data in {directory}; "
                f"python -m reports html {directory}"
            )
            session.exitstatus = self.interrupts.exit_code(exit_code)
        if self.failures and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        for leak in self.recorder.leaks:
            write(f"left behind: {text.bounded(leak, text.MAX_LINE_BYTES)}", red=True)
        for restart in self.recorder.zygote_restarts:
            write(f"a zygote was started anew: {restart}", yellow=True)
        if self.session.engine.network.warning:
            write(f"WARNING: {self.session.engine.network.warning}", yellow=True)
        if self.problem:
            write(self.problem, red=True)
        if self.written is None:
            return
        if self.config.option.dist != "no":
            write("several processes shared this machine (-n): no timings were taken")
        from reports.render import terminal
        from reports.sections import conformance, registry

        if self.config.option.durations is not None:
            write(conformance.DURATIONS)

        run, failures = self.written, registry.Failures(self.failures or ())
        write("")
        failures.attempt(
            "the summary", lambda: terminal.summary(run, console(), failures=failures), write
        )
        for note in failures:
            write(note, red=True)
        if failures and self.pytest_session.exitstatus == pytest.ExitCode.OK:
            self.pytest_session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Print the last line of an interrupted run, below pytest's own about the interruption."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.last_line and reporter:
            reporter.write_line(self.last_line, red=True)

    def _left_behind(self) -> list[str]:
        """Return processes of this session that remain after a grace period of 2 seconds."""
        identity = self.session.engine.session
        try:
            wait_until("all processes", lambda: not leaks.processes(identity), 2.0, 0.1)
        except TimeoutError:
            return leaks.processes(identity)
        return []

    def _not_examined(self) -> list[dict[str, str]]:
        """Return test, trainer and reason of what could not be examined, each once.

        Each of pytest-xdist's workers collects the same tests.
        """
        found = [*self.config.stash.get(NOT_EXAMINED, []), *self.recorder.not_examined]
        return list({tuple(sorted(entry.items())): entry for entry in found}.values())

    def _run_info(self, exit_code: int, status: str) -> dict[str, Any]:
        session = self.session
        engine, dataset, source = session.engine, session.dataset, provenance.git()
        return {
            "run_id": self.recorder.run_id,
            "command": provenance.command_line(self.config.invocation_params.args),
            "start": self.recorder.start,
            "end": timestamps.now(),
            "seed": session.settings.seed,
            "versions": provenance.versions(session.interpreter, source),
            "machine": {
                **provenance.machine(self.recorder.load_1m, session.settings),
                "disk_free_gib": free_gib(self.recorder),
            },
            "git": source,
            "engine": engine.to_dict(),
            "network": engine.network.to_dict(),
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
            "programs": [program.to_dict() for program in session.programs],
            "not_examined": self._not_examined(),
            "leaks": self.recorder.leaks,
            "zygote_restarts": len(self.recorder.zygote_restarts),
            "status": status,
            "exit_code": exit_code,
        }


def console() -> Console:
    """Return the console for the summary, as wide as the terminal or COLUMNS says."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(file=sys.stdout, width=None if known else WIDTH_WITHOUT_TERMINAL)


def free_gib(recorder: Recorder) -> float:
    return round(shutil.disk_usage(recorder.directory).free / 2**30, 1)
