"""Examine mutants: run the tests of each row in a copy of the checkout that has the mistake."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from reports.core.verdicts import FAILED
from reports.rundir import event_files, frame
from suite.harness.core.errors import BadInput
from suite.harness.core.paths import ROOT
from suite.mutants.catalog import MACHINERY, Mutant

FOUND, MISSED, EQUIVALENT, NOT_RUN = "found", "missed", "equivalent", "not run"
# Exit codes of pytest: all passed, some failed.
PASSED_CODE, FAILED_CODE = 0, 1
SEED = ("--seed", "1")  # for weights that must be equal
HEALTHY = "suite/conformance/test_accounting.py::test_run_finishes_requested_steps"


@dataclass(frozen=True)
class Result:
    """What the tests of a row said of its mutant."""

    name: str
    outcome: str
    by: tuple[str, ...] = ()  # names of the tests of the row that failed
    claims: tuple[str, ...] = ()  # that these tests show
    seconds: float = 0.0
    tensorflow: str = ""  # of a mutant of a trainer
    reason: str = ""  # for "not run"


def copy_checkout(directory: Path) -> Path:
    """Copy what Git knows of the checkout, and what is new in it; return the copy."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BadInput(f"{ROOT}: a Git checkout is needed to examine mutants") from error
    copy = directory / "checkout"
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return copy


def run(
    mutants: Iterable[Mutant], directory: Path, options: Sequence[str] = ()
) -> Iterator[Result]:
    """Examine each mutant, and yield its result. `options`: of pytest, for mutants of trainers."""
    directory.mkdir(parents=True)
    copy = copy_checkout(directory)
    for row in mutants:
        path = copy / row.file
        original = path.read_text(encoding="utf-8")
        start = time.monotonic()
        try:
            path.write_text(row.source(original), encoding="utf-8")
            result = _examine(row, copy, directory, options)
        finally:
            path.write_text(original, encoding="utf-8")
        seconds = round(time.monotonic() - start, 1)
        version = "" if row.kind == MACHINERY else importlib.metadata.version("tensorflow")
        result = replace(result, seconds=seconds, tensorflow=version)
        with (directory / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        yield result


def recorded(path: Path) -> dict[str, Result]:
    """Return the results in a file of this module by name; raise BadInput for another file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        results = [Result(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: no results of mutants: {error}") from error
    return {row.name: replace(row, by=tuple(row.by), claims=tuple(row.claims)) for row in results}


def _examine(row: Mutant, copy: Path, directory: Path, options: Sequence[str]) -> Result:
    if row.kind == MACHINERY:
        code, log = _pytest(copy, directory, row.name, row.tests)
        if code not in (PASSED_CODE, FAILED_CODE):
            return Result(row.name, NOT_RUN, reason=f"pytest ended with exit code {code}: {log}")
        failed = re.findall(r"^FAILED \S+::(\w+)", log.read_text("utf-8", "replace"), re.M)
        return Result(row.name, FOUND if code else MISSED, tuple(dict.fromkeys(failed)))
    if row.equivalent:
        return _proven(row, copy, directory, options)
    code, run_dir = _trained(row, copy, directory, row.name, row.tests, options)
    if code not in (PASSED_CODE, FAILED_CODE):
        return Result(row.name, NOT_RUN, reason=f"pytest ended with exit code {code}")
    try:
        verdicts = frame.load(run_dir).verdicts
    except frame.BadInput as error:
        return Result(row.name, NOT_RUN, reason=str(error))
    if verdicts.empty:
        return Result(row.name, NOT_RUN, reason="no test of the row examines the trainer")
    failed = verdicts[verdicts["verdict"] == FAILED]
    names = (re.sub(r"\[.*", "", test.split("::")[-1]) for test in failed["test"])
    claims = {claim for cell in failed["claims"] for claim in cell}
    found = row.claim in claims
    by = tuple(dict.fromkeys(names))
    return Result(row.name, FOUND if found else MISSED, by, tuple(sorted(claims)))


def _trained(
    row: Mutant,
    copy: Path,
    directory: Path,
    name: str,
    tests: Sequence[str],
    options: Sequence[str],
) -> tuple[int, Path]:
    run_dir = directory / "runs" / name
    own = ["--trainer", row.trainer, "--run-dir", str(run_dir), *row.options, *options]
    code, _ = _pytest(copy, directory, name, [*tests, *own])
    return code, run_dir


def _pytest(copy: Path, directory: Path, name: str, words: Sequence[str]) -> tuple[int, Path]:
    """Run pytest in the copy; return its exit code and its log."""
    log = directory / "logs" / f"{name}.txt"
    log.parent.mkdir(exist_ok=True)
    # Without -B a file that is edited twice within a second may run as it was before.
    command = [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rf"]
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [*command, *words], cwd=copy, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    return done.returncode, log


def _proven(row: Mutant, copy: Path, directory: Path, options: Sequence[str]) -> Result:
    """Compare the weights of the mutant with those of the file without the mistake."""
    path = copy / row.file
    mutated = path.read_text(encoding="utf-8")
    sides = {}
    for side, text in (
        (row.name, mutated),
        (f"{row.name}-base", (ROOT / row.file).read_text("utf-8")),
    ):
        path.write_text(text, encoding="utf-8")
        code, run_dir = _trained(row, copy, directory, side, [HEALTHY], [*options, *SEED])
        if code != PASSED_CODE:
            return Result(row.name, NOT_RUN, reason=f"pytest ended with exit code {code}")
        sides[side] = _digests(run_dir)
    mutant, base = sides.values()
    if not base:
        return Result(row.name, NOT_RUN, reason="the run has no digests of weights")
    return Result(row.name, EQUIVALENT if mutant == base else MISSED)


def _digests(run_dir: Path) -> list[tuple[Any, ...]]:
    """Return (cluster, task, when, global step, digest) of all weights of a run."""
    found = []
    for path in sorted((run_dir / event_files.EVENTS).glob("*/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            event = event_files.parse(line)
            if event["event"] == "weights":
                keys = ("task", "when", "global_step", "digest")
                found.append((path.parent.name, *(event[key] for key in keys)))
    return sorted(found)


def clean_failures(
    mutants: Sequence[Mutant], directory: Path, options: Sequence[str] = ()
) -> list[str]:
    """Run all tests of the rows without a mistake; return a line for each that does not pass."""
    directory.mkdir(parents=True)
    copy = copy_checkout(directory)
    lines = []
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in mutants:
        groups.setdefault((row.trainer, row.options), []).extend(row.tests)
    for number, ((trainer, own), tests) in enumerate(groups.items()):
        name = f"{trainer or MACHINERY}-{number}"
        words = [*dict.fromkeys(tests), *own]
        if trainer:
            words += ["--trainer", trainer, "--run-dir", str(directory / "runs" / name), *options]
        code, log = _pytest(copy, directory, name, words)
        if code != PASSED_CODE:
            lines.append(f"without a mistake, {trainer or MACHINERY} fails: {log}")
    return lines
