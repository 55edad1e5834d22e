"""Tests of SIGINT and SIGTERM in each phase of a run: kept results, leftovers, pytest's exit."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.rundir import frame
from suite.harness.cluster import leaks
from suite.meta import phases

pytestmark = pytest.mark.xdist_group("sessions")  # like test_sessions.py


@pytest.mark.parametrize(
    ("phase", "number"),
    [(phase, number) for phase, row in phases.SESSIONS.items() for number in row.signals],
    ids=lambda value: getattr(value, "name", value),
)
def test_signal_keeps_verdicts_and_leaves_nothing(
    plugin_stage: Path, sessions, capsys, phase: str, number: signal.Signals
):
    done = sessions["interrupted"].result()
    assert done.returncode == 0, done.stderr
    expected, name = phases.SESSIONS[phase], phases.name_of(phase, number)
    directory = plugin_stage / name
    output = (directory / "output").read_text()

    assert json.loads(done.stdout)[name] == {"SIGINT": 2, "SIGTERM": 143}[number.name], output
    (written,) = [p for p in (directory / "runs").iterdir() if not p.is_symlink()]
    run = frame.load(written)
    assert run.info.get("status") == expected.status
    assert list(run.verdicts["verdict"]) == ["passed"] * expected.verdicts
    assert len(run.measurements) == expected.verdicts
    assert (written / "junit.xml").is_file()
    latest = directory / "runs" / "latest"
    assert latest.is_symlink() == (expected.status == "complete")
    last_line = output.splitlines()[-1]
    assert last_line.startswith("interrupted")
    assert str(written) in last_line

    assert run.info["leaks"] == []
    assert leaks.processes(run.info["session"]) == []
    assert list((directory / "temporary").iterdir()) == []

    pages_are_cut = "data" in expected.stops or "pages" in expected.stops
    assert (written / "report.html").is_file() != pages_are_cut
    assert main(["html", str(written)]) == 0  # the command that the last line names
    assert capsys.readouterr().err == ""
