"""Make SIGTERM end pytest as Ctrl-C does: in order, with a report of the results so far.

pytest itself handles SIGINT only; SIGTERM would kill it at once. A run that SIGTERM ended exits
with 143, as a shell reports a process that died of it. A supervisor (`timeout`, a batch system, a
CI job) reads the same code as from any other program, and can distinguish it from Ctrl-C, which is
2.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

INTERRUPTED, TERMINATED = 2, 128 + signal.SIGTERM
# The handlers that a process starts with. Any other handler (Ctrl-C ignored in the background of a
# shell, a handler of the program around pytest) is kept.
DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@dataclass
class Interrupts:
    """One handler for SIGINT and SIGTERM, from `install` to `restore`.

    It raises KeyboardInterrupt, on which pytest ends a session, unless signals are held.
    """

    received: list[int] = field(default_factory=list)  # in order
    hold: bool = False

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():  # required by signal.signal
            for number, default in DEFAULTS.items():
                if signal.getsignal(number) == default:
                    signal.signal(number, self._handle)

    def restore(self) -> None:
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, default)

    def _handle(self, number: int, _: Any) -> None:
        __tracebackhide__ = True  # pytest then prints where the run was interrupted
        self.received.append(number)
        if not self.hold:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals until the end of a block that must not be interrupted."""
        before, self.hold = len(self.received), True
        try:
            yield
        finally:
            self.hold = False
        if len(self.received) > before:
            raise KeyboardInterrupt

    def exit_code(self, otherwise: int) -> int:
        """Return the exit code for the first signal, or `otherwise` without a signal."""
        if not self.received:
            return otherwise
        return TERMINATED if self.received[0] == signal.SIGTERM else INTERRUPTED
