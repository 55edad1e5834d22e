"""Run pytest on tests of the suite in a process of its own, and read its run directory.

`reports` does not import the suite. Progress goes to stderr, so that stdout has the report only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from reports.rundir import frame
from reports.rundir.frame import BadInput, RunFrames

VALID_EXIT_CODES = (0, 1)  # exit codes of pytest: 1 is a red verdict; the measurements remain valid
PR_SET_PDEATHSIG = 1  # prctl(2)
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

    signals = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(number, stop) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, handlers, strict=True):
            signal.signal(number, handler)


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
    own = dict(text.split("=", 1) for text in variables)
    process = _popen(arguments, stdout=sys.stderr, env={**os.environ, **own})
    code = _ended(process, process.wait)
    if code not in VALID_EXIT_CODES or not (directory / "run.json").exists():
        raise BadInput(f"nothing was measured: pytest ended with exit code {code}")
    return frame.load(directory)


def collect(targets: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the node ids of the tests that pytest would run, in its order.

    Raise BadInput if it refuses the arguments; it has then printed a line on stderr.
    """
    arguments = [*targets, *arguments, "--collect-only", "-q"]
    process = _popen(arguments, stdout=subprocess.PIPE, text=True)
    printed = _ended(process, lambda: process.communicate()[0]) or ""
    if process.returncode not in (0, 5):  # 5: no test was collected
        lines = [line for line in printed.splitlines() if line.strip()]
        why = lines[-1] if lines else f"pytest ended with exit code {process.returncode}"
        raise BadInput(f"nothing can be measured: {why}")
    return [line for line in printed.splitlines() if "::" in line and " " not in line]


def _popen(arguments: Sequence[str], **streams: Any) -> subprocess.Popen[Any]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    # In a session of its own, Ctrl-C reaches pytest once, from `_wait`. If this process is killed,
    # pytest gets SIGTERM and cleans up.
    return subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent, **streams)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _ended(process: subprocess.Popen[Any], wait: Callable[[], T]) -> T:
    """Return what `wait` returns; pass a signal on to pytest and wait until it has cleaned up."""
    try:
        return wait()
    except (Stopped, KeyboardInterrupt) as error:
        process.send_signal(error.number if isinstance(error, Stopped) else signal.SIGINT)
        process.communicate()  # also reads what it prints, so that it does not wait for a reader
        raise
