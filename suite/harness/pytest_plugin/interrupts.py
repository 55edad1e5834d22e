"""SIGTERM ends pytest as Ctrl-C does: in order, with a report of what there is.

pytest itself handles SIGINT only; SIGTERM would end it on the spot. A run that SIGTERM ended exits
with 143, as a shell reports a process that died of it: a supervisor (`timeout`, a batch system, a
CI job) reads the same code as of any other program, and can tell it from Ctrl-C, which is 2.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

INTERRUPTED, TERMINATED = 2, 128 + signal.SIGTERM
# What a process starts with. Where something else is set (Ctrl-C ignored in the background of a
# shell, a handler of the program around pytest), it stays.
DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@dataclass
class Interrupts:
    """One handler for SIGINT and SIGTERM, from `install` to `restore`.

    It raises KeyboardInterrupt, for which pytest ends a session, unless signals are held.
    """

    received: list[int] = field(default_factory=list)  # in order
    hold: bool = False

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():  # as signal.signal demands
            for number, default in DEFAULTS.items():
                if signal.getsignal(number) == default:
                    signal.signal(number, self._handle)

    def restore(self) -> None:
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, default)

    def _handle(self, number: int, _: Any) -> None:
        __tracebackhide__ = True  # pytest prints where the run was interrupted
        self.received.append(number)
        if not self.hold:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let signals wait for the end of the block, which must not be cut."""
        before, self.hold = len(self.received), True
        try:
            yield
        finally:
            self.hold = False
        if len(self.received) > before:
            raise KeyboardInterrupt

    def exit_code(self, otherwise: int) -> int:
        """Return the exit code by the first signal, `otherwise` where none came."""
        if not self.received:
            return otherwise
        return TERMINATED if self.received[0] == signal.SIGTERM else INTERRUPTED
