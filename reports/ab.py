"""`python -m reports ab`: measures two sides in turns, and says which is faster and how sure that is.

The measuring is the suite's (`pytest suite/benchmarks/test_paired.py --base WHAT`), in a process of
its own, so that everything it knows of interpreters, data and clusters holds here too; its run
directory is kept. Judging is this package's alone, and can be repeated from that directory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd

from reports import frame, paired
from reports.effects import Answer
from reports.frame import BadInput, RunFrames
from reports.paired import Series

ROOT = Path(__file__).resolve().parent.parent
TEST = ROOT / "suite" / "benchmarks" / "test_paired.py"
RUNS = ROOT / "reports" / "runs"
CHANGED = (Answer.REGRESSION, Answer.IMPROVEMENT)
# Options of pytest's, as they are: name -> what --help says.
PASSED_ON = {
    "--base": "against what: an interpreter, a backend, a trainer, a Keras flavour, or same",
    "--new": "what is measured, of the same kind",
    "--trainer": "only this trainer (default: all that tell of steps); repeatable",
    "--backend": "only this backend; repeatable",
    "--keras": "only this Keras flavour; repeatable",
    "--python": "interpreter of the new side, where --new is something else",
    "--workers": "training workers of every cluster",
    "--data": "images as Keras' mnist.npz",
    "--budget": "seconds of timed steps of each side and comparison, at most (default: 60)",
    "--slow-down": "percent by which the new side is slowed down, for a trial",
    "--seed": "of data order and weights",
}
REPEATABLE = ("--trainer", "--backend", "--keras")
EXITS_OF_PYTEST = (0, 1)  # all passed, or some verdict was red: what was measured still stands


def add_options(parser: argparse.ArgumentParser) -> None:
    for name, told in PASSED_ON.items():
        action = {"action": "append", "default": []} if name in REPEATABLE else {}
        parser.add_argument(name, metavar=name[2:].upper(), help=told, **action)


def passed_on(options: argparse.Namespace) -> list[str]:
    """The command line of pytest for what was asked for."""
    found = []
    for name in PASSED_ON:
        given = getattr(options, name[2:].replace("-", "_"))
        for value in given if isinstance(given, list) else [given]:
            found += [] if value is None else [name, value]
    return found


def measure(arguments: Sequence[str], tests: Iterable[str] = ()) -> RunFrames:
    """Measure, telling of it on stderr, and read the run; BadInput when there is nothing to read.

    `tests`: node ids of those to measure; default: all that the arguments leave.
    """
    RUNS.mkdir(parents=True, exist_ok=True)
    name = datetime.now(timezone.utc).strftime("ab-%Y%m%dT%H%M%S%f")
    directory = RUNS / name
    which = [str(ROOT / test) for test in tests] or [str(TEST)]
    command = [sys.executable, "-m", "pytest", *which, *arguments, "--run-dir", str(directory)]
    done = subprocess.run(command, cwd=Path.cwd(), stdout=sys.stderr, check=False)
    if done.returncode not in EXITS_OF_PYTEST or not (directory / "run.json").exists():
        raise BadInput(f"nothing was measured: pytest ended with exit code {done.returncode}")
    return frame.load(directory)


def of(runs: Iterable[RunFrames]) -> tuple[pd.DataFrame, list[Series]]:
    """The comparisons in these runs; BadInput when there are none."""
    measurements, _ = frame.tidy(runs)
    found = paired.series(measurements)
    if not found:
        raise BadInput("nothing was compared in turns; measure with --base")
    return measurements, found


def confirmed(
    found: Sequence[Series], answers: Sequence[Answer], again: dict[str, Answer]
) -> list[Answer]:
    """A change stands when the second measurement gives the same answer; else it cannot be told."""
    return [
        answer if answer not in CHANGED or again.get(one.test) == answer else Answer.CANNOT_TELL
        for one, answer in zip(found, answers, strict=True)
    ]
