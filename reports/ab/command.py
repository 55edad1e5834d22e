"""`python -m reports ab`: measure two sides interleaved and compare their step times.

The suite measures (`pytest suite/benchmarks/test_paired.py --base WHAT`) in a separate process, so
its handling of interpreters, data and clusters applies here too; its run directory is kept. This
package only judges, and can judge that directory again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from reports.ab import pairs, suite_run
from reports.ab.pairs import Series
from reports.cli_options import STRICT, Option, formats
from reports.core import verdicts
from reports.core.grouping import backends
from reports.core.labels import approach
from reports.core.table import Table
from reports.rundir import frame
from reports.rundir.frame import BadInput, RunFrames
from reports.stats.counts import Difference
from reports.stats.ratio_tests import CHANGED, Answer

ROOT = Path(__file__).resolve().parents[2]
TEST = ROOT / "suite" / "benchmarks" / "test_paired.py"
RUNS = ROOT / "reports" / "runs"
# Options that are passed to pytest unchanged: name -> text of --help.
PYTEST_OPTIONS = {
    "--base": "an interpreter, backend, trainer, program, Keras flavor, documented, or same",
    "--new": "the new side, of the same kind as --base",
    "--base-env": "variable of the base side only: NAME=VALUE (repeatable)",
    "--new-env": "variable of the new side only: NAME=VALUE (repeatable)",
    "--trainer": "only this trainer, or your program (repeatable; default: all trainers)",
    "--backend": "only this backend (repeatable)",
    "--keras": "only this Keras flavor (repeatable)",
    "--python": "interpreter of the new side, if --new is not an interpreter",
    "--workers": "training workers of every cluster",
    "--cpus": "processors to which both sides are pinned: 0,1 (default: all)",
    "--threads": "threads in each of TensorFlow's pools (default: TensorFlow's choice)",
    "--malloc": "keep (default): glibc keeps freed memory; default: it does not",
    "--data": "images as Keras' mnist.npz",
    "--budget": "maximum time of timed steps for each side: 90, 90s or 10m (default: 60s)",
    "--control": "also compare the base with itself, so that ratios can be followed over days",
    "--times": "repeat each comparison this many times, for trials",
    "--slow-down": "injected slowdown of the new side in percent, for trials",
    "--seed": "seed of data order and weights",
    "--deadline-scale": "multiply every deadline by this factor, for slow machines",
}
SWITCHES = ("--control",)
REPEATABLE = ("--base-env", "--new-env", "--trainer", "--backend", "--keras")
OPTIONS: tuple[Option, ...] = (
    *(
        (
            (name,),
            {"action": "store_true", "default": None, "help": help_text}
            if name in SWITCHES
            else {"metavar": name[2:].upper(), "help": help_text}
            | ({"action": "append", "default": []} if name in REPEATABLE else {}),
        )
        for name, help_text in PYTEST_OPTIONS.items()
    ),
    (
        ("--run-dir",),
        {"type": Path, "metavar": "DIR", "help": "run directory (default: reports/runs/ab-<time>)"},
    ),
    (
        ("--confirm",),
        {"action": "store_true", "help": "measure changes again; both measurements must agree"},
    ),
    STRICT,
    formats("text", "md", "json"),
)


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

    @cached_property
    def differences(self) -> Sequence[Mapping[str, Difference]]:
        """Return the answers for the numbers of a step, for each comparison."""
        return pairs.differences_of(self.series)

    def exit_code(self, strict: bool) -> int:
        """Return the exit code of the command.

        1: a regression or a broken comparison. 2: no comparison has a result. 3: with `strict`, an
        answer is "cannot tell". 0: otherwise.
        """
        counted = [one.answer for own in self.differences for one in own.values()]
        if any(one.red for one in self.broken) or Answer.REGRESSION in (*self.answers, *counted):
            return 1
        if not self.series:
            return 2
        return 3 if strict and Answer.CANNOT_TELL in self.answers else 0

    def tables(self) -> list[Table]:
        """Return the comparisons, and the numbers of a step that differ."""
        first, *others = pairs.tables(self.series, self.answers, self.differences)
        return [self._with_notes(first), *others]

    def _with_notes(self, table: Table) -> Table:
        """Add repeated measurements and broken comparisons."""
        lines = [
            f"{pairs.heading(one)}: measured again, {pairs.ratio(one.effect)}: {answer.value}."
            for one, answer in self.again.values()
        ]
        lines += [
            f"{one.name}: {verdicts.BY_NAME[one.verdict].words}: {one.reason}"
            for one in self.broken
        ]
        return replace(table, note="\n".join([*lines, table.note]))

    def to_json(self) -> str:
        """Return a JSON list with an object for each comparison.

        Keys: name, base, new, workers, pairs, ratio, low, high, p, base_step_s, new_step_s,
        timed_s, ended, start_up_s, noisy_pairs, answer; unknown numbers are null. A comparison that
        was measured again has all keys once more in `again`. A comparison without a result has
        name, answer (its verdict) and reason. `counts` has for each number of a step: base, new,
        low, high (of new less base), answer, reason.
        """
        entries = [entry(*pair) for pair in zip(self.series, self.answers, strict=True)]
        for keys, counted in zip(entries, self.differences, strict=True):
            keys["counts"] = {name: entry_of_number(one) for name, one in counted.items()}
        for one, keys in zip(self.series, entries, strict=True):
            if one.test in self.again:
                keys["again"] = entry(*self.again[one.test])
        entries += [
            {"name": one.name, "answer": one.verdict, "reason": one.reason} for one in self.broken
        ]
        return json.dumps(entries, indent=1) + "\n"


def entry(one: Series, answer: Answer) -> dict[str, Any]:
    """Return a comparison for JSON, see `Outcome.to_json`."""
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


def entry_of_number(one: Difference) -> dict[str, Any]:
    """Return a number of a step for JSON; unknown limits are null."""
    return {
        "base": one.base,
        "new": one.new,
        "low": None if math.isnan(one.low) else one.low,
        "high": None if math.isnan(one.high) else one.high,
        "answer": one.answer.value,
        "reason": one.reason,
    }


def outcome(runs: Sequence[RunFrames], options: argparse.Namespace) -> Outcome:
    """Return the outcome of these runs, or of a run that is measured now.

    With `--confirm`, changes are measured once more and count only if both measurements agree.
    Raise BadInput if the options contradict each other or nothing was compared.
    """
    if runs and options.base:
        raise BadInput("give recorded runs or --base, not both")
    if not runs and not options.base:
        raise BadInput("--base: give a side to compare with, such as an interpreter or `same`")
    arguments = pytest_arguments(options)
    if runs and arguments:
        raise BadInput(f"{arguments[0]}: applies only to a new measurement, not to recorded runs")
    if runs and options.confirm:
        raise BadInput("--confirm: a second measurement needs --base")
    directory = options.run_dir or new_directory("ab")
    first = of(runs or [measure(arguments, directory)])
    changes = [
        s for s, answer in zip(first.series, first.answers, strict=True) if answer in CHANGED
    ]
    if not (options.confirm and changes):
        return first
    second_directory = directory.with_name(f"{directory.name}-again")
    second = of([measure(arguments, second_directory, [one.test for one in changes])])
    second_results = {
        one.test: (one, answer) for one, answer in zip(second.series, second.answers, strict=True)
    }
    answers = confirmed(first.series, first.answers, second_results)
    return Outcome(first.series, answers, [*first.broken, *second.broken], second_results)


def of(runs: Sequence[RunFrames]) -> Outcome:
    """Return the comparisons in these runs, judged together; raise BadInput if there are none.

    The pairs of a broken comparison are discarded, however many were completed before.
    """
    measurements, verdicts_of_runs = frame.tidy(runs)
    failures = verdicts_of_runs.loc[
        (verdicts_of_runs["verdict"] != pairs.PASSED)
        & verdicts_of_runs["test"].str.contains(TEST.name)
    ]
    broken = [Broken(_name(row), row["verdict"], row["reason"]) for _, row in failures.iterrows()]
    comparisons = pairs.series(pairs.ended_well(measurements, verdicts_of_runs))
    if not comparisons and not broken:
        reasons = [one["reason"] for run in runs for one in run.info.get("not_examined", ())]
        remedy = f"not examined: {reasons[0]}" if reasons else "measure with --base"
        raise BadInput(f"the runs have no paired comparison; {remedy}")
    return Outcome(comparisons, pairs.answers_of(comparisons), broken)


def _name(row: Mapping[str, Any]) -> str:
    parts = (approach(row["trainer"], row["keras"]), backends(row["backend"], ""))
    return ", ".join(filter(None, parts))


def confirmed(
    comparisons: Sequence[Series],
    answers: Sequence[Answer],
    again: Mapping[str, tuple[Series, Answer]],
) -> list[Answer]:
    """Return the answers, with "cannot tell" for changes that the second measurement lacks."""
    return [
        answer
        if answer not in CHANGED or (one.test in again and again[one.test][1] is answer)
        else Answer.CANNOT_TELL
        for one, answer in zip(comparisons, answers, strict=True)
    ]


def pytest_arguments(options: argparse.Namespace) -> list[str]:
    """Return pytest's arguments for the given options."""
    return given(options, PYTEST_OPTIONS)


def given(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return pytest's arguments for those of the named options that were given."""
    arguments = []
    for name in names:
        values = getattr(options, name[2:].replace("-", "_"))
        for value in values if isinstance(values, list) else [values]:
            arguments += [] if value is None else [name] if value is True else [name, value]
    return arguments


def new_directory(kind: str) -> Path:
    """Return a directory for the runs of a command that is named by its kind and the time."""
    return RUNS / f"{kind}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.getpid()}"


def measure(arguments: Sequence[str], directory: Path, tests: Iterable[str] = ()) -> RunFrames:
    """Measure with progress on stderr and read the run; raise BadInput if there is no run to read.

    `tests`: node ids of the tests to measure; default: all that the arguments select.
    """
    return suite_run.run([str(ROOT / test) for test in tests] or [str(TEST)], arguments, directory)
