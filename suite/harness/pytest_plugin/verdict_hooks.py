"""Turn the outcome of a test into one of the six verdicts, for pytest and the run directory."""

from __future__ import annotations

import hashlib
import platform
import shlex
import socket
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from reports.core import text
from suite.harness.cluster import diagnostics
from suite.harness.core.case import Case
from suite.harness.core.errors import CheckFailed, NotExamined, TrainerFailed, Unsupported
from suite.harness.core.settings import TAKEN_IN_BY
from suite.harness.core.timestamps import now
from suite.harness.metrics import interference
from suite.harness.pytest_plugin.fixtures import (
    CHARGED,
    MEASURED,
    RUNS,
    blamed,
    case_of,
    needed_scenario,
    scenario_name,
    scenario_of,
    unseen,
)
from suite.harness.session.session import SESSION, Session
from suite.harness.tables import verdicts

# The attribute of a report that carries rows from pytest-xdist's workers to the controller.
CARRIED = "tf_distribute_conformance"
# Errors of the software under test: the place in the harness that detected them is irrelevant to a
# reader.
EXAMINED = (TrainerFailed, CheckFailed, Unsupported)
# Seconds of a test's setup, which has no verdict of its own unless it fails.
SET_UP = pytest.StashKey[float]()


def claims_of(item: pytest.Item, session: Session, case: Case) -> list[str]:
    """Return the claims that this test verifies for this case's trainer."""
    named = [claim for mark in item.iter_markers("claim") for claim in mark.args]
    shown = {row.id for row in session.claims.of(case.trainer)}
    return [claim for claim in named if claim in shown]


def reproduce(item: pytest.Item, session: Session) -> str:
    """Return the command that runs this test alone, on the same data, with the same seed."""
    settings = replace(session.settings, data=str(session.dataset.path))
    paired = item.get_closest_marker("paired") is not None
    marks = [mark for mark in TAKEN_IN_BY if item.get_closest_marker(mark)]
    words = [*program_option(item, session), *settings.reproduce(paired=paired, marks=marks)]
    return shlex.join(["pytest", item.nodeid.split("@")[0], *words])


def program_option(item: pytest.Item, session: Session) -> list[str]:
    """Return `--trainer PATH` for a test of a user's program, which pytest finds by no other way.

    The path is relative to the checkout, in which the command is typed, if the program lies there.
    """
    case, root = case_of(item), item.config.rootpath
    for program in session.programs:
        if case and case.trainer.name == program.row.name:
            inside = program.file.is_relative_to(root)
            return ["--trainer", str(program.file.relative_to(root) if inside else program.file)]
    return []


def common(session: Session, case: Case, test: str) -> dict[str, Any]:
    """Return the columns that verdicts and measurements share."""
    topology = session.engine.topology(case.trainer)
    return {
        "test": test,
        "trainer": case.trainer.name,
        "backend": case.backend,
        "workers": len(topology.workers),
        "tensorflow": session.interpreter.tensorflow,
        "keras": session.interpreter.label(case.keras),
        "python": session.interpreter.python_version,
        "host": socket.gethostname() or platform.node(),
        "time": now(),
    }


def variant_of(item: pytest.Item, case: Case) -> dict[str, str]:
    """Return the columns of fault and variant, of a scenario that has them."""
    scene = scenario_of(item)
    row = getattr(scene, "row", None)  # of the fault matrix
    if row:
        return {"fault": row.fault, "variant": row.variant(case.trainer)}
    variant = getattr(scene, "variant", "")
    return {"variant": variant} if variant else {}


def judge(item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
    """Set the verdict of the phase, and make pytest's own outcome agree with it."""
    session = item.config.stash.get(SESSION, None)
    case = case_of(item)
    error = blamed(item, call.excinfo.value if call.excinfo else None)
    if (
        session is None
        or case is None
        or isinstance(error, KeyboardInterrupt | pytest.exit.Exception)
    ):
        return
    report.duration = max(0.0, report.duration + item.stash.get(CHARGED, 0.0))
    item.stash[CHARGED] = 0.0
    if report.when != "call" and error is None:
        item.stash[SET_UP] = report.duration
        return
    test = item.nodeid.split("@")[0]
    if isinstance(error, NotExamined):
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, (line or 0) + 1, f"not examined: {error}")
        found = {"test": test, "trainer": case.trainer.name, "reason": str(error)}
        setattr(report, CARRIED, {"not_examined": found})
        return
    row = session.expectation(case, getattr(item, "originalname", item.name), scenario_name(item))
    if report.when == "teardown":
        row = None  # a row is about the approach, and teardown only cleans up
    judgement = verdicts.decide(error, row, phase=report.when)
    if judgement.verdict in (verdicts.FAILED, verdicts.HARNESS_ERROR):
        error = unseen(item, error)
        judgement = verdicts.decide(error, row, phase=report.when)
    apply(report, judgement)
    again = reproduce(item, session)
    explained = text.bounded(explain(item, error)) if report.failed else hangs(item)
    if report.failed:
        shown = failure(item, call, judgement) or report.longreprtext
        parts = (shown, f"to reproduce: {again}", explained)
        report.longrepr = text.bounded("\n\n".join(filter(None, parts)))
    columns = common(session, case, test) | variant_of(item, case)
    replicas = columns["workers"] * case.trainer.devices
    carried = {
        "test": test,
        "duration_s": item.stash.get(SET_UP, 0.0) + report.duration,
        "cause": cause_of(item, session, case, error) if report.failed else "",
        "row": {
            **columns,
            **timing_of(item, session),
            "claims": claims_of(item, session, case),
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "url": judgement.url,
            "reproduce": again,
            "diagnosis": explained,
            "events": histories(item, session, case),
        },
        "measurements": [
            {"replicas": replicas, "repeat": 0, **columns, **row}
            for row in item.stash.get(MEASURED, [])
        ],
    }
    item.stash[SET_UP] = 0.0
    setattr(report, CARRIED, carried)
    # Set on the item: junit.xml takes the properties that exist at its teardown.
    item.user_properties.append(("verdict", judgement.verdict))
    if judgement.reason:
        item.user_properties.append(("reason", judgement.reason))


def add_state(item: pytest.Item, watch: interference.Watch) -> None:
    """Add rows of the machine's state during a measurement; none if nothing was measured."""
    rows = item.stash.get(MEASURED, [])
    if not rows:
        return
    variant = {"better": "none"}
    for name, share in (("steal", watch.steal), ("foreign", watch.foreign)):
        rows.append({**variant, "metric": f"machine_{name}_share", "value": share, "unit": "1"})
    rows.append(
        {**variant, "metric": "machine_lock_acquired", "value": float(watch.alone), "unit": "1"}
    )
    if (frequency := interference.mhz()) is not None:
        rows.append({**variant, "metric": "machine_mhz", "value": frequency, "unit": "MHz"})


def histories(item: pytest.Item, session: Session, case: Case) -> list[str]:
    """Return the paths of the events of the clusters that this test judged or started."""
    needed = needed_scenario(item, session)
    functions = [needed[1]] if needed else []
    functions += [getattr(item, "function", None)]
    return [found for own in functions for found in session.histories.get((case.id, own), [])]


def timing_of(item: pytest.Item, session: Session) -> dict[str, Any]:
    """Return the columns of the judged scenario: its name, start and duration."""
    needed = needed_scenario(item, session)
    timing = session.timings.get((needed[0].id, needed[1])) if needed else None
    if timing is None:
        return {}
    columns = {"scenario": timing.name, "scenario_start": timing.start}
    return {**columns, "scenario_s": timing.took_s}


def apply(report: pytest.TestReport, judgement: verdicts.Judgement) -> None:
    """Set pytest's outcome: a known deviation is an xfail, an unsupported case is a skip.

    Other bad verdicts are failures.
    """
    reason = f"{judgement.verdict}: {judgement.reason} {judgement.url}".strip()
    if judgement.verdict == "known_deviation":
        report.outcome = "skipped"
        report.wasxfail = report.longrepr = reason
    elif judgement.verdict == "unsupported":
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, (line or 0) + 1, reason)
    elif judgement.verdict == "unexpected_pass":
        report.outcome = "failed"
        report.longrepr = reason
    elif judgement.verdict in ("failed", "harness_error"):
        report.outcome = "failed"
        if report.longrepr is None or isinstance(report.longrepr, tuple):
            report.longrepr = reason


def failure(item: pytest.Item, call: pytest.CallInfo[Any], judgement: verdicts.Judgement) -> str:
    """Return the message of an error of the software under test, with the test's own line.

    A traceback through the harness would not explain it. Return "" for any other cause.
    """
    if call.excinfo is None or not isinstance(call.excinfo.value, EXAMINED):
        return ""
    own = getattr(getattr(item, "function", None), "__code__", None)
    lines = [entry for entry in call.excinfo.traceback if entry.frame.code.raw is own]
    parts = [f"{type(call.excinfo.value).__name__}: {call.excinfo.value}"]
    if verdicts.first_line(str(call.excinfo.value)) != judgement.reason:
        parts.insert(0, judgement.reason)  # such as that another message was expected
    if lines:
        path = item.nodeid.split("::")[0]
        parts.append(f"{path}:{lines[-1].lineno + 1}: {text.one_line(str(lines[-1].statement))}")
    return "\n".join(parts)


def cause_of(item: pytest.Item, session: Session, case: Case, error: BaseException | None) -> str:
    """Return a digest that identifies the cause of a failure, the same in each pytest process.

    A scenario's error is one object for all tests that ask for its outcome, also through another
    scenario. Checks that fail with one message on one scenario have one cause as well.
    """
    if error is None:
        return ""
    if not hasattr(error, "cause_digest"):
        needed = needed_scenario(item, session) if isinstance(error, EXAMINED) else None
        scene = needed and needed[1]
        where = (scene.__module__, scene.__qualname__, scene.__name__) if scene else (item.nodeid,)
        variant = "\n".join([case.id, *where, type(error).__name__, str(error)])
        digest = hashlib.sha256(variant.encode(errors="replace")).hexdigest()
        error.cause_digest = digest  # type: ignore[attr-defined] - any exception may pass through
    return error.cause_digest  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Message:
    """A failure's representation for pytest: the text, and a line for the short summary.

    For a plain string, pytest's short summary prints all lines again where CI is set.
    """

    text: str
    summary: str

    @property
    def reprcrash(self) -> SimpleNamespace:
        return SimpleNamespace(message=verdicts.first_line(self.summary))

    def toterminal(self, writer: Any) -> None:
        writer.line(self.text)

    def __str__(self) -> str:
        return self.text


def summarize_in_one_line(report: pytest.TestReport) -> None:
    """Make pytest's short summary one line. Call this where all reports arrive.

    An earlier call would be lost: a worker of pytest-xdist sends this representation as a string.
    """
    if report.failed and isinstance(report.longrepr, str):
        carried = getattr(report, CARRIED, None) or {}
        # The text of an error that is not from a check begins with pytest's view of the source.
        reason = carried["row"]["reason"] if "row" in carried else report.longrepr
        report.longrepr = Message(report.longrepr, reason)  # type: ignore[assignment] - duck-typed


def refer_to_first(report: pytest.TestReport, first: dict[str, str]) -> None:
    """Refer to the first test with the same cause, which shows the cause in full.

    `first`: the test of each cause so far. Call this where all reports arrive.
    """
    carried = getattr(report, CARRIED, None)
    if not carried or not carried.get("cause"):
        return
    test, row = first.setdefault(carried["cause"], carried["test"]), carried["row"]
    if test != carried["test"]:
        row["diagnosis"] = f"same cause as {test}"
        lines = (row["reason"], row["diagnosis"], f"to reproduce: {row['reproduce']}")
        report.longrepr = "\n".join(lines)


def explain(item: pytest.Item, error: BaseException | None) -> str:
    """Return the diagnosis of the live tasks, or else a description of their histories."""
    seen = getattr(error, "diagnosis", "")
    if seen:
        return seen
    return "\n\n".join(diagnostics.describe(run) for run in item.stash.get(RUNS, []))


def hangs(item: pytest.Item) -> str:
    """Return the hung tasks and their calls, where this approach is known to hang."""
    return "\n\n".join(filter(None, map(diagnostics.hangs, item.stash.get(RUNS, []))))


def status(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Return pytest's status of a harness error, an error in any phase; None for other reports."""
    carried = getattr(report, CARRIED, None)
    if carried and report.failed and carried["row"]["verdict"] == "harness_error":
        return "error", "E", "HARNESS ERROR"
    return None
