"""Run both sides: first the verdicts of each, then the step times of both in turns.

What was done is in `record.json`, which is written after each step, so that a stopped command can
still report what it had.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from reports.ab import command as ab
from reports.ab import pairs, suite_run
from reports.rundir import frame
from reports.rundir import writer as store
from reports.rundir.frame import BadInput, RunFrames
from reports.stats import ratio_tests
from reports.stats.ratio_tests import Answer
from reports.upgrade.sides import Pair

RECORD = "record.json"
SIDES = ("base", "new")
# Everything that gives a verdict; step times are measured apart, in turns.
VERDICTS = tuple(str(ab.ROOT / "suite" / folder) for folder in ("conformance", "faults"))
# Timed seconds of each side in one look at a comparison: enough for the fewest pairs of processes.
LOOK_S = 12.0
# The most looks at one comparison. Each is a chance of a false alarm, so all of them are corrected
# for, also those that are not made.
LOOKS = 4
# Options of pytest that hold for both sides.
COMMON = ("--workers", "--data", "--cpus", "--threads", "--deadline-scale")


@dataclass
class Record:
    """What was asked for and done so far. Directories are relative to that of the record.

    `sides`: text of each side. `verdicts`: seconds of each side's run of verdicts. `tests`: the
    comparisons of step times, in the order in which they are measured. `looks`: the runs of each.
    `spent_s`: of each, in all its looks. `stopped`: by what, if it did not finish.
    """

    sides: Mapping[str, str]
    budget_s: float
    seed: str
    verdicts: dict[str, float] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    looks: dict[str, list[str]] = field(default_factory=dict)
    spent_s: dict[str, float] = field(default_factory=dict)
    stopped: str = ""

    def write(self, directory: Path) -> None:
        """Write the record."""
        store.write_file(directory / RECORD, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Record:
        """Return the record of a directory; raise BadInput if there is none."""
        try:
            return cls(**json.loads((directory / RECORD).read_text()))
        except FileNotFoundError as error:
            raise BadInput(f"{directory} is no directory of an upgrade: no {RECORD}") from error
        except (ValueError, TypeError) as error:
            raise BadInput(f"{directory / RECORD} is damaged: {error}") from error


@dataclass(frozen=True)
class Measured:
    """A record with the runs that belong to it. A run of verdicts may be missing."""

    record: Record
    runs: Mapping[str, RunFrames]  # of the verdicts, by side
    comparisons: Mapping[str, pairs.Series]  # by test
    broken: Mapping[str, ab.Broken]  # by test

    def answer(self, test: str) -> Answer:
        """Return the answer for one comparison, corrected for all looks at all of them."""
        looks = LOOKS * len(self.record.tests)
        effect = self.comparisons[test].effect
        return ratio_tests.judge(effect, "lower", looks, least=ratio_tests.LEAST_PAIRS)


def load(directory: Path) -> Measured:
    """Return what a directory has; raise BadInput if it is not that of an upgrade."""
    record = Record.read(directory)
    runs = {
        side: frame.load(directory / side)
        for side in SIDES
        if (directory / side / "run.json").exists()
    }
    comparisons: dict[str, pairs.Series] = {}
    broken: dict[str, ab.Broken] = {}
    for test, looks in record.looks.items():
        outcome = ab.of([frame.load(directory / look) for look in looks])
        if outcome.broken:
            broken[test] = outcome.broken[0]
        elif outcome.series:
            comparisons[test] = pairs.merged(outcome.series)
    return Measured(record, runs, comparisons, broken)


def measure(pair: Pair, options: argparse.Namespace, directory: Path) -> None:
    """Run everything and keep it in `directory`.

    Raise BadInput if a side cannot run, and Stopped if a signal arrived; what was done is kept.
    """
    seed = str(secrets.randbelow(2**31)) if options.seed is None else options.seed
    record = Record({s.name: s.text for s in pair.sides()}, options.budget, seed)
    directory.mkdir(parents=True, exist_ok=True)
    record.write(directory)
    common = ["--seed", seed, *ab.given(options, COMMON)]
    own = ab.given(options, ("--backend", "--keras"))
    trainers = [] if pair.programs else ab.given(options, ("--trainer",))
    try:
        for place, side in enumerate(pair.sides()):
            started_s = time.monotonic()
            arguments = [*common, *own, *trainers, *pair.verdict_arguments(place)]
            suite_run.run(VERDICTS, arguments, directory / side.name, side.variables)
            record.verdicts[side.name] = time.monotonic() - started_s
            record.write(directory)
        arguments = [*common, *own, *trainers, *pair.paired_arguments()]
        record.tests = spread(suite_run.collect([str(ab.TEST)], arguments))
        record.write(directory)
        _step_times(record, arguments, directory)
    except suite_run.Stopped as error:
        record.stopped = str(error)
        record.write(directory)
        raise


def _step_times(record: Record, arguments: Sequence[str], directory: Path) -> None:
    """Look at the comparisons until all are decided or the budget is used up."""
    started_s = time.monotonic()
    while test := next_look(load(directory), record.budget_s - time.monotonic() + started_s):
        look_s = time.monotonic()
        name = f"step-times-{1 + sum(map(len, record.looks.values())):03}"
        words = [*arguments, "--budget", f"{LOOK_S:g}"]
        suite_run.run([str(ab.ROOT / test)], words, directory / name)
        record.looks.setdefault(test, []).append(name)
        record.spent_s[test] = record.spent_s.get(test, 0.0) + time.monotonic() - look_s
        record.write(directory)


def next_look(measured: Measured, left_s: float) -> str | None:
    """Return the test to look at next, or None if nothing is undecided or no look fits.

    First each comparison gets one look. Then those that are undecided get more, the ones with the
    fewest looks first. A look takes as long as the last ones did.
    """
    record = measured.record
    if left_s <= 0:
        return None
    unseen = [test for test in record.tests if test not in record.looks]
    undecided = [
        test
        for test in record.tests
        if test in measured.comparisons
        and len(record.looks[test]) < LOOKS
        and measured.answer(test) is Answer.CANNOT_TELL
    ]
    candidates = unseen or sorted(undecided, key=lambda test: len(record.looks[test]))
    fitting = (test for test in candidates if expected_s(record, test) <= left_s)
    return next(fitting, None)


def expected_s(record: Record, test: str) -> float:
    """Return how long the next look at a test will take; 0 before the first look at any test."""
    if test in record.spent_s:
        return record.spent_s[test] / len(record.looks[test])
    looks = sum(map(len, record.looks.values()))
    return sum(record.spent_s.values()) / looks if looks else 0.0


def compared(test: str) -> str:
    """Return what a comparison is of, as `keras_mirrored, keras3`, from the test's parameters."""
    _, _, parameters = test.rstrip("]").partition("[")
    return ", ".join(parameters.split("-")[1:]) or test


def spread(tests: Iterable[str]) -> list[str]:
    """Return the tests with the first of each trainer in front, so that a budget covers most."""
    by_trainer: dict[str, list[str]] = {}
    for test in tests:
        by_trainer.setdefault(test.partition("[")[2].split("-")[1], []).append(test)
    longest = max(map(len, by_trainer.values()), default=0)
    return [own[i] for i in range(longest) for own in by_trainer.values() if i < len(own)]
