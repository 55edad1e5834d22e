"""Tests of the progress line: redrawn within a terminal's width, written seldom to a file."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from suite.harness.core.history import Event
from suite.harness.pytest_plugin import progress
from suite.harness.pytest_plugin.progress import ERASE, LINE_EVERY_S, REDRAW_S, Progress

COLUMNS = 40
START, END = progress.DRAW.split("{}")
DRAWN = re.compile(f"{re.escape(START)}(.*?){re.escape(END)}")


def show(shown: Progress, label: str, after_s: float, step: object = 7) -> None:
    """Report a step as if the last line were `after_s` seconds older."""
    shown.last_s -= after_s
    shown(label, Event("step", 1.0, "worker/0", 0, {"global_step": step}))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Yield a Progress on a terminal of COLUMNS, and `read`, which returns its output."""
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, COLUMNS, 0, 0))
    shown = Progress()
    shown.open(os.fdopen(theirs, "w"))

    def read() -> str:
        # The kernel returns the output in pieces, so read up to a mark.
        os.write(theirs, b"\0")
        found = b""
        while not found.endswith(b"\0"):
            found += os.read(ours, 4096)
        return found[:-1].decode()

    yield SimpleNamespace(progress=shown, read=read)
    shown.close()
    os.close(ours)


def test_progress_is_drawn_on_a_terminal_within_its_width(terminal: SimpleNamespace):
    show(terminal.progress, "scenario", REDRAW_S)
    assert DRAWN.findall(terminal.read()) == ["  scenario: worker/0 step 7".ljust(COLUMNS - 1)]
    show(terminal.progress, "a long name of a scenario" * 9, REDRAW_S)
    (text,) = DRAWN.findall(terminal.read())
    assert len(text) < COLUMNS


def test_progress_is_erased_once_before_other_output(terminal: SimpleNamespace):
    show(terminal.progress, "scenario", REDRAW_S)
    for _ in range(2):
        with terminal.progress.paused():
            pass
    assert DRAWN.sub("", terminal.read()) == ERASE


def test_progress_shows_escapes_of_an_event_as_text(terminal: SimpleNamespace):
    show(terminal.progress, "scenario", REDRAW_S, step="\033[?1049h\n8")
    assert DRAWN.findall(terminal.read())[0].rstrip() == r"  scenario: worker/0 step \x1b[?1049h 8"


def test_progress_in_a_file_is_a_line_at_long_intervals(tmp_path: Path):
    shown, path = Progress(), tmp_path / "log"
    shown.open(path.open("w"))
    for after_s in (REDRAW_S, LINE_EVERY_S, REDRAW_S):
        show(shown, "scenario", after_s)
    shown.close()
    show(shown, "after its end", LINE_EVERY_S)
    assert path.read_text() == "\n  scenario: worker/0 step 7\n"


@pytest.mark.xdist_group("sessions")
def test_a_session_on_a_terminal_draws_and_leaves_nothing(sessions):
    done = sessions["terminal"].result()
    assert done.returncode == 0, done.stdout
    assert DRAWN.search(done.stdout)
    left = re.sub(f"(?:{DRAWN.pattern})+{re.escape(ERASE)}", "", done.stdout)
    assert "\033D" not in left
    assert "1 passed" in left
