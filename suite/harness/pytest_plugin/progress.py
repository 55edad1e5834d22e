"""Show each cluster's current step while the suite runs, on a terminal or in a log."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TextIO

from rich.cells import set_cell_size

from reports.core.text import clean, one_line
from suite.harness.core.history import Event

REDRAW_S = 0.2
LINE_EVERY_S = 15.0  # where the output is not a terminal
USUAL_COLUMNS = 80  # for a terminal that does not report its size
WORTH_SAYING = ("joined", "step", "epoch", "restored", "fault_started", "exited")
# Draw on the line below pytest's own, so that no column is unknown. First make sure that this line
# exists: index scrolls at the bottom and keeps the column, which a line feed would not.
DRAW = "\033D\033[A\0337\033[E\033[2m{}\033[0m\033[K\0338"
ERASE = "\0337\033[E\033[K\0338"


class Progress:
    """Show progress: one line that is redrawn on a terminal, elsewhere a new line now and then."""

    def __init__(self) -> None:
        self.stream: TextIO | None = None
        self.terminal = False
        self.last_s = float("-inf")  # so the first event is shown at once
        self.drawn = False
        self.lock = Lock()  # clusters that run at once report at once

    def open(self, stream: TextIO) -> None:
        """Show events on this stream from now on; no event is shown before."""
        self.stream = stream
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        if not self.terminal:
            self.last_s = time.monotonic()  # so that a short run writes no lines to a log

    def close(self) -> None:
        """Erase the line and stop showing events."""
        with self.paused():
            if self.stream is not None:
                self.stream.close()
            self.stream = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Erase the line, and draw none while other text is printed."""
        with self.lock:
            if self.drawn and self.stream is not None:
                self.stream.write(ERASE)
                self.stream.flush()
                self.drawn = False
            yield

    def __call__(self, label: str, event: Event) -> None:
        if event.name not in WORTH_SAYING:
            return
        with self.lock:
            if self.stream is not None:
                self._show(self.stream, label, event)

    def _show(self, stream: TextIO, label: str, event: Event) -> None:
        now = time.monotonic()
        if now - self.last_s < (REDRAW_S if self.terminal else LINE_EVERY_S):
            return
        self.last_s = now
        at = f" {event['global_step']}" if "global_step" in event.data else ""
        text = one_line(clean(f"{label}: {event.task} {event.name}{at}"))
        if self.terminal:
            columns = os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
            # A line that fills the last column, or continues below, could not be erased.
            stream.write(DRAW.format(set_cell_size("  " + text, columns - 1)))
        else:
            stream.write(f"\n  {text}\n")
        stream.flush()
        self.drawn = self.terminal

    def announce(self, text: str) -> None:
        """Write a permanent line."""
        with self.paused():
            if self.stream is not None:
                self.stream.write(f"\n  {text}\n")
                self.stream.flush()
