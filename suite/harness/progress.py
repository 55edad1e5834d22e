"""Shows which cluster is at which step while the suite runs, on a terminal or in a log."""

from __future__ import annotations

import time
from threading import Lock
from typing import TextIO

from suite.harness.run import Event

REDRAW_S = 0.2
LINE_EVERY_S = 15.0  # where the output is not a terminal
WORTH_SAYING = ("joined", "step", "epoch", "restored", "fault_started", "exited")


class Progress:
    """One line that is drawn over on a terminal; elsewhere a line now and then."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.terminal = bool(stream and stream.isatty())
        self.last_s = time.monotonic()
        self.drawn = False
        self.lock = Lock()  # clusters that are played at once tell of themselves at once

    def __call__(self, label: str, event: Event) -> None:
        if self.stream is None or event.name not in WORTH_SAYING:
            return
        with self.lock:
            self._show(self.stream, label, event)

    def _show(self, stream: TextIO, label: str, event: Event) -> None:
        now = time.monotonic()
        if now - self.last_s < (REDRAW_S if self.terminal else LINE_EVERY_S):
            return
        self.last_s = now
        at = f" {event['global_step']}" if "global_step" in event.data else ""
        text = f"{label}: {event.task} {event.name}{at}"
        if self.terminal:
            # Erase to the end of the line, draw, and come back to where pytest's own dots stand.
            stream.write(f"\0337  \033[2m{text[:70]}\033[0m\033[K\0338")
        else:
            stream.write(f"\n  {text}\n")
        stream.flush()
        self.drawn = self.terminal

    def clear(self) -> None:
        """Wipe the line before something else is printed."""
        if self.drawn and self.stream is not None:
            self.stream.write("\033[K")
            self.stream.flush()
            self.drawn = False
