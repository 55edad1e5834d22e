"""`python -m reports ab`: measure two sides interleaved and compare their step times.

The suite measures (`pytest suite/benchmarks/test_paired.py --base WHAT`) in a separate process, so
its handling of interpreters, data and clusters applies here too; its run directory is kept. This
package only judges, and can judge that directory again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from reports.ab import pairs
from reports.ab.pairs import Series
from reports.cli_options import STRICT, Option, formats
from reports.core import verdicts
from reports.core.grouping import backends
from reports.core.labels import approach
from reports.core.table import Table
from reports.rundir import frame
from reports.rundir.frame import BadInput, RunFrames
from reports.stats.ratio_tests import CHANGED, Answer

ROOT = Path(__file__).resolve().parents[2]
TEST = ROOT / "suite" / "benchmarks" / "test_paired.py"
RUNS = ROOT / "reports" / "runs"
# Options that are passed to pytest unchanged: name -> text of --help.
PASSED_ON = {
    "--base": "an interpreter, a backend, a trainer, a Keras flavour, documented, or same",
    "--new": "what is measured, of the same kind",
    "--trainer": "only this trainer (repeatable; default: all)",
    "--backend": "only this backend (repeatable)",
    "--keras": "only this Keras flavour (repeatable)",
    "--python": "interpreter of the new side, where --new is something else",
    "--workers": "training workers of every cluster",
    "--cpus": "processors to which both sides are bound: 0,1 (default: all)",
    "--threads": "threads in each of TensorFlow's pools (default: its own)",
    "--malloc": "whether glibc keeps freed memory (default: keep; else: default)",
    "--data": "images as Keras' mnist.npz",
    "--budget": "seconds of timed steps, of each side of a comparison, at most (default: 60)",
    "--times": "do each comparison so often, for trials",
    "--slow-down": "percent by which the new side is slowed down, for trials",
    "--seed": "of data order and weights",
    "--deadline-scale": "stretch every deadline by this factor, on a slow machine",
}
REPEATABLE = ("--trainer", "--backend", "--keras")
OPTIONS: tuple[Option, ...] = (
    *(
        (
            (name,),
            {"metavar": name[2:].upper(), "help": told}
            | ({"action": "append", "default": []} if name in REPEATABLE else {}),
        )
        for name, told in PASSED_ON.items()
    ),
    (
        ("--run-dir",),
        {"type": Path, "metavar": "DIR", "help": "where it goes (default: reports/runs/ab-<time>)"},
    ),
    (
        ("--confirm",),
        {"action": "store_true", "help": "measure again what changed; both must agree"},
    ),
    STRICT,
    formats("text", "md", "json"),
)
MEASURED = (0, 1)  # exit codes of pytest: 1 is a red verdict; the measurements remain valid


@dataclass(frozen=True)
class Broken:
    """A comparison without a result: its verdict, and the reason."""

    name: str  # approach and backend of the new side
    verdict: str
    reason: str

    @property
    def red(self) -> bool:
        """Return True if the verdict is red, so that a result was expected."""
        return verdicts.BY_NAME[self.verdict].red


@dataclass(frozen=True)
class Outcome:
    """All comparisons with their answers, and those without a result."""

    series: Sequence[Series]
    answers: Sequence[Answer]
    broken: Sequence[Broken] = ()
    again: Mapping[str, tuple[Series, Answer]] = field(default_factory=dict)  # by test

    def exit_code(self, strict: bool) -> int:
        """Return the exit code of the command.

        1: a regression or a broken comparison. 2: no comparison has a result. 3: with `strict`, an
        answer is "cannot tell". 0: otherwise.
        """
        if any(one.red for one in self.broken) or Answer.REGRESSION in self.answers:
            return 1
        if not self.series:
            return 2
        return 3 if strict and Answer.CANNOT_TELL in self.answers else 0

    def table(self) -> Table:
        """Return the comparisons; the note lists repeated measurements and broken comparisons."""
        shown = pairs.table(self.series, self.answers)
        told = [
            f"{pairs.heading(one)}: measured again, {pairs.ratio(one.effect)}: {answer.value}."
            for one, answer in self.again.values()
        ]
        told += [
            f"{one.name}: {verdicts.BY_NAME[one.verdict].words}: {one.reason}"
            for one in self.broken
        ]
        return replace(shown, note="\n".join([*told, shown.note]))

    def to_json(self) -> str:
        """Return a JSON list with an object for each comparison.

        Keys: name, base, new, workers, pairs, ratio, low, high, p, base_step_s, new_step_s,
        timed_s, ended, start_up_s, noisy_pairs, answer; unknown numbers are null. A comparison that
        was measured again has all keys once more in `again`. A comparison without a result has
        name, answer (its verdict) and reason.
        """
        listed = [_told(*both) for both in zip(self.series, self.answers, strict=True)]
        for one, told in zip(self.series, listed, strict=True):
            if one.test in self.again:
                told["again"] = _told(*self.again[one.test])
        listed += [
            {"name": one.name, "answer": one.verdict, "reason": one.reason} for one in self.broken
        ]
        return json.dumps(listed, indent=1) + "\n"


def _told(one: Series, answer: Answer) -> dict[str, Any]:
    effect = one.effect
    numbers = {
        **{name: getattr(effect, name) for name in ("ratio", "low", "high", "p")},
        **{f"{side}_step_s": one.step_s[side] for side in pairs.SIDES},
        "timed_s": one.timed_s,
        "start_up_s": one.start_up_s,
    }
    return {
        "name": one.name,
        **one.labels,
        "workers": one.workers,
        "pairs": effect.processes,
        **{name: number if number == number else None for name, number in numbers.items()},
        "ended": one.ended,
        "noisy_pairs": one.noisy,
        "answer": answer.value,
    }


def outcome(runs: Sequence[RunFrames], options: argparse.Namespace) -> Outcome:
    """Return the outcome of these runs, or of a run that is measured now.

    With `--confirm`, changes are measured once more and count only if both measurements agree.
    Raise BadInput if the options contradict each other or nothing was compared.
    """
    if runs and options.base:
        raise BadInput("give runs that were measured, or --base to measure one, not both")
    if not runs and not options.base:
        raise BadInput("--base: give what to compare with, as an interpreter, or `same`")
    arguments = passed_on(options)
    if runs and arguments:
        raise BadInput(f"{arguments[0]}: says what is measured, and these runs have been")
    if runs and options.confirm:
        raise BadInput("--confirm: measures again, which needs --base")
    name = f"ab-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.getpid()}"
    directory = options.run_dir or RUNS / name
    found = of(runs or [measure(arguments, directory)])
    changed = [
        s for s, answer in zip(found.series, found.answers, strict=True) if answer in CHANGED
    ]
    if not (options.confirm and changed):
        return found
    beside = directory.with_name(f"{directory.name}-again")
    again = of([measure(arguments, beside, [one.test for one in changed])])
    seconds = {
        one.test: (one, answer) for one, answer in zip(again.series, again.answers, strict=True)
    }
    answers = confirmed(found.series, found.answers, seconds)
    return Outcome(found.series, answers, [*found.broken, *again.broken], seconds)


def of(runs: Iterable[RunFrames]) -> Outcome:
    """Return the comparisons in these runs, judged together; raise BadInput if there are none.

    The pairs of a broken comparison are discarded, however many were completed before.
    """
    measurements, judged = frame.tidy(runs)
    lost = judged.loc[(judged["verdict"] != pairs.PASSED) & judged["test"].str.contains(TEST.name)]
    broken = [Broken(_name(row), row["verdict"], row["reason"]) for _, row in lost.iterrows()]
    found = pairs.series(pairs.ended_well(measurements, judged))
    if not found and not broken:
        raise BadInput("nothing was compared in turns; measure with --base")
    return Outcome(found, pairs.judged(found), broken)


def _name(row: Mapping[str, Any]) -> str:
    shown = (approach(row["trainer"], row["keras"]), backends(row["backend"], ""))
    return ", ".join(filter(None, shown))


def confirmed(
    found: Sequence[Series], answers: Sequence[Answer], again: Mapping[str, tuple[Series, Answer]]
) -> list[Answer]:
    """Return the answers, with "cannot tell" for changes that the second measurement lacks."""
    return [
        answer
        if answer not in CHANGED or (one.test in again and again[one.test][1] is answer)
        else Answer.CANNOT_TELL
        for one, answer in zip(found, answers, strict=True)
    ]


def passed_on(options: argparse.Namespace) -> list[str]:
    """Return pytest's arguments for the given options."""
    found = []
    for name in PASSED_ON:
        given = getattr(options, name[2:].replace("-", "_"))
        for value in given if isinstance(given, list) else [given]:
            found += [] if value is None else [name, value]
    return found


def measure(arguments: Sequence[str], directory: Path, tests: Iterable[str] = ()) -> RunFrames:
    """Measure with progress on stderr and read the run; raise BadInput if there is no run to read.

    `tests`: node ids of the tests to measure; default: all that the arguments select.
    """
    which = [str(ROOT / test) for test in tests] or [str(TEST)]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *which, *arguments]
    command += ["--run-dir", str(directory)]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode not in MEASURED or not (directory / "run.json").exists():
        raise BadInput(f"nothing was measured: pytest ended with exit code {done.returncode}")
    return frame.load(directory)
