"""Run pytest on tests of the suite in a process of its own, and read its run directory.

`reports` does not import the suite. Progress goes to stderr, so that stdout has the report only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from reports.rundir import frame
from reports.rundir.frame import BadInput, RunFrames

VALID_EXIT_CODES = (0, 1)  # exit codes of pytest: 1 is a red verdict; the measurements remain valid
REFUSED = 4  # pytest's exit code for arguments that it, or the suite, does not accept
PR_SET_PDEATHSIG = 1  # prctl(2)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")


class Stopped(Exception):
    """SIGINT or SIGTERM arrived; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped when SIGINT or SIGTERM arrives within."""

    def stop(number: int, _: Any) -> None:
        raise Stopped(number)

    handlers = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        _restore(handlers)


def run(
    targets: Sequence[str],
    arguments: Sequence[str],
    directory: Path,
    variables: Iterable[str] = (),
) -> RunFrames:
    """Run pytest and read the run; raise BadInput if there is no run to read.

    `variables`: NAME=VALUE, added to those of this process.
    """
    arguments = [*targets, *arguments, "--run-dir", str(directory)]
    env = {**os.environ, **dict(text.split("=", 1) for text in variables)}
    code, _ = _pytest(arguments, subprocess.Popen.wait, stdout=sys.stderr, env=env)
    if code not in VALID_EXIT_CODES or not (directory / "run.json").exists():
        why = f"ended with exit code {code}"
        if code == REFUSED:
            why = "refused its arguments; its own message is above"
        raise BadInput(f"nothing was measured: pytest {why}")
    return frame.load(directory)


def collect(targets: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the node ids of the tests that pytest would run, in its order.

    Raise BadInput if it refuses the arguments; it has then printed a line on stderr.
    """
    arguments = [*targets, *arguments, "--collect-only", "-q"]
    code, (printed, _) = _pytest(
        arguments, subprocess.Popen.communicate, stdout=subprocess.PIPE, text=True
    )
    if code not in (0, 5):  # 5: no test was collected
        lines = [line for line in printed.splitlines() if line.strip()]
        why = lines[-1] if lines else f"pytest ended with exit code {code}"
        raise BadInput(f"nothing can be measured: {why}")
    return [line for line in printed.splitlines() if "::" in line and " " not in line]


def _pytest(
    arguments: Sequence[str], wait: Callable[[subprocess.Popen[Any]], T], **streams: Any
) -> tuple[int, T]:
    """Run pytest; return its exit code and what `wait` returns.

    Pass a signal on to pytest, and wait until it has cleaned up.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    early: list[int] = []  # signals that arrived before there was a process to pass them on to
    handlers = {n: signal.signal(n, lambda number, _: early.append(number)) for n in SIGNALS}
    try:
        # In a session of its own, Ctrl-C reaches pytest once, from here. If this process is killed,
        # pytest gets SIGTERM and cleans up.
        process = subprocess.Popen(
            command, start_new_session=True, preexec_fn=_end_with_parent, **streams
        )
        try:
            _restore(handlers)
            for number in early:
                signal.raise_signal(number)
            waited = wait(process)
        except (Stopped, KeyboardInterrupt) as error:
            process.send_signal(error.number if isinstance(error, Stopped) else signal.SIGINT)
            process.communicate()  # reads what it prints, so that it does not wait for that
            raise
    finally:
        _restore(handlers)
    return process.returncode, waited


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
