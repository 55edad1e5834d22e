"""Turns the outcome of a test into one of the six verdicts, for pytest and the run directory."""

from __future__ import annotations

import platform
import shlex
import socket
from typing import Any

import pytest

from suite.harness import diagnosis, machine, verdicts
from suite.harness.cases import Case
from suite.harness.fixtures import MEASURED, RUNS, case_of, scene_name, scene_needed, scene_of
from suite.harness.recording import now
from suite.harness.session import SESSION, Session

# The attribute of a report that carries rows from pytest-xdist's workers to the controller.
CARRIED = "tf_distribute_conformance"


def claims_of(item: pytest.Item, session: Session, case: Case) -> list[str]:
    """The claims that this test shows for this case's trainer."""
    named = [claim for mark in item.iter_markers("claim") for claim in mark.args]
    shown = {row.id for row in session.claims.of(case.trainer)}
    return [claim for claim in named if claim in shown]


def reproduce(item: pytest.Item, session: Session) -> str:
    """The command that runs this test alone, on the same data, with the same seed."""
    settings = session.settings
    parts = ["pytest", item.nodeid.split("@")[0], "--seed", str(settings.seed)]
    parts += ["--data", str(session.dataset.path)]
    parts += ["--python", settings.python] if settings.python else []
    parts += ["--workers", str(settings.workers)] if settings.workers else []
    parts += ["--spawn", settings.spawn] if settings.spawn != "fork" else []
    parts += ["--cpus", ",".join(map(str, settings.cpus))] if settings.cpus else []
    parts += ["--threads", str(settings.threads)] if settings.threads else []
    parts += ["--malloc", settings.malloc] if settings.malloc else []
    if settings.base and item.get_closest_marker("paired"):
        parts += ["--base", settings.base, "--budget", f"{settings.budget_s:g}"]
        parts += ["--times", str(settings.times)] if settings.times > 1 else []
        parts += [part for name in settings.backends for part in ("--backend", name)]
        parts += ["--slow-down", f"{100 * settings.slow_down:g}"] if settings.slow_down else []
    return shlex.join(parts)


def common(session: Session, case: Case, test: str) -> dict[str, Any]:
    """The columns that verdicts and measurements share."""
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


def struck_by(item: pytest.Item, case: Case) -> dict[str, str]:
    """The columns that say what was hurt how and when, for a row of the fault table."""
    row = getattr(scene_of(item), "row", None)
    return {"fault": row.fault, "variant": row.told(case.trainer)} if row else {}


def judge(item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
    """Give the phase its verdict, and make pytest's own outcome agree with it."""
    session = item.config.stash.get(SESSION, None)
    case = case_of(item)
    error = call.excinfo.value if call.excinfo else None
    if (
        session is None
        or case is None
        or isinstance(error, KeyboardInterrupt | pytest.exit.Exception)
    ):
        return
    if report.when != "call" and error is None:
        return
    test = item.nodeid.split("@")[0]
    row = session.expectation(case, getattr(item, "originalname", item.name), scene_name(item))
    if report.when == "teardown":
        row = None  # a row speaks of the approach, not of what is left to clean up
    judgement = verdicts.decide(error, row, phase=report.when)
    apply(report, judgement)
    if report.failed:
        explained = explain(item, error)
        report.longrepr = f"{report.longreprtext or judgement.reason}\n\n{explained}"
    columns = common(session, case, test) | struck_by(item, case)
    replicas = columns["workers"] * case.trainer.devices
    carried = {
        "test": test,
        "duration_s": report.duration,
        "row": {
            **columns,
            "claims": claims_of(item, session, case),
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "url": judgement.url,
            "reproduce": reproduce(item, session),
            "diagnosis": explain(item, error) if report.failed else hangs(item),
            "events": histories(item, session, case),
        },
        "measurements": [
            {"replicas": replicas, "repeat": 0, **columns, **row}
            for row in item.stash.get(MEASURED, [])
        ],
    }
    setattr(report, CARRIED, carried)
    # Of the item: junit.xml takes the properties that are there at its teardown.
    item.user_properties.append(("verdict", judgement.verdict))
    if judgement.reason:
        item.user_properties.append(("reason", judgement.reason))


def add_state(item: pytest.Item, watch: machine.Watch) -> None:
    """Rows of the machine's state while a test measured; none where it did not come to that."""
    rows = item.stash.get(MEASURED, [])
    if not rows:
        return
    told = {"better": "none"}
    for name, share in (("steal", watch.steal), ("foreign", watch.foreign)):
        rows.append({**told, "metric": f"machine_{name}_share", "value": share, "unit": "1"})
    if (frequency := machine.mhz()) is not None:
        rows.append({**told, "metric": "machine_mhz", "value": frequency, "unit": "MHz"})


def histories(item: pytest.Item, session: Session, case: Case) -> list[str]:
    """Where the events of the clusters lie that this test judged or started."""
    needed = scene_needed(item, session)
    names = [needed[1].__name__] if needed else []
    names += [getattr(item, "originalname", item.name)]
    return [found for name in names for found in session.histories.get((case.id, name), [])]


def apply(report: pytest.TestReport, judgement: verdicts.Judgement) -> None:
    """What pytest shows for a verdict: a deviation is an xfail, unsupported a skip, red is red."""
    reason = f"{judgement.verdict}: {judgement.reason} {judgement.url}".strip()
    if judgement.verdict == "known_deviation":
        report.outcome = "skipped"
        report.wasxfail = reason
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


def explain(item: pytest.Item, error: BaseException | None) -> str:
    """What was seen while the tasks lived, or what their histories still tell."""
    seen = getattr(error, "diagnosis", "")
    if seen:
        return seen
    return "\n\n".join(diagnosis.describe(run) for run in item.stash.get(RUNS, []))


def hangs(item: pytest.Item) -> str:
    """Who hung in which call, where that is known and expected of this approach."""
    return "\n\n".join(filter(None, map(diagnosis.hangs, item.stash.get(RUNS, []))))


def status(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A harness error is an error to pytest, in whichever phase it came."""
    carried = getattr(report, CARRIED, None)
    if carried and report.failed and carried["row"]["verdict"] == "harness_error":
        return "error", "E", "HARNESS ERROR"
    return None
