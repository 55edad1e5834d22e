"""Mutants: programs of users with one mistake each, and the tests that must find it.

The programs are in suite/programs/plain. They write no events, as those of users. A mutant, a row
of suite/mutants/programs.toml, is one of them with a few texts replaced. It is examined twice: at
level 1, by its file alone, and at level 2, with arguments for its length, directories, batch and
seed. A mutant is found if a test fails that passes for the program without the mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from reports.core.table import Column, Row, Table
from reports.core.verdicts import FAILED
from reports.rundir.frame import BadInput, RunFrames
from suite.harness.core import errors
from suite.harness.core.paths import ROOT
from suite.harness.tables.toml_schema import did_you_mean
from suite.mutants.edits import edited, read_rows

FOLDER = ROOT / "suite" / "programs" / "plain"
ROWS = ROOT / "suite" / "mutants" / "programs.toml"
LEVELS = (1, 2)
ARGS = (
    "--model_dir={model_dir}",
    "--data={data}",
    "--epochs={epochs}",
    "--steps={steps_per_epoch}",
    "--batch={batch_size}",
)
SEED = ("--seed={seed}",)
EXACT = "deterministic = true"
EQUAL = f"{EXACT}\nequivalent = true"


@dataclass(frozen=True)
class Program:
    """A program without a mistake, and how its TOML file describes it at level 2.

    `fails`: tests that may fail for it, with the reason; they find no mutant of it.
    """

    name: str
    args: tuple[str, ...]
    declares: str = ""
    fails: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def source(self) -> str:
        return (FOLDER / f"{self.name}.py").read_text(encoding="utf-8")


WAITS = "a worker that starts before the chief has initialized the variables waits 30 s for them"
ALONE = "with device filters a worker does not wait until all other workers are up"
BASES = (
    Program("keras_fit", (*ARGS, *SEED), EQUAL),
    Program("custom_loop", (*ARGS, *SEED, "--backend={backend}"), EQUAL),
    Program("mirrored", (*ARGS, *SEED), EXACT),
    Program("coordinator", ARGS),
    Program(
        "monitored_session",
        ARGS,
        fails={
            "test_all_workers_contribute": WAITS,
            "test_no_step_before_the_last_task_is_up": ALONE,
        },
    ),
)
PROGRAMS = {row.name: row for row in BASES}


@dataclass(frozen=True)
class Mutant:
    """One mistake in a program, the lowest level at which a test finds it, and the test for it.

    `program`: the name of a row of BASES. `old` and `new` have a text each for each edit, in order;
    `old` occurs once in the program. `level` and `test`, or `why` no test finds it. `declares`:
    further lines of the TOML file at level 1.
    """

    name: str
    program: str
    mistake: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    level: int | None = None
    test: str = ""
    why: str = ""
    declares: str = ""

    @property
    def base(self) -> Program:
        return PROGRAMS[self.program]

    @property
    def source(self) -> str:
        """Return the source with the mistake. Raise ValueError if a text does not occur once."""
        return edited(self.name, self.base.source, zip(self.old, self.new, strict=True))


def load(path: Path = ROWS) -> tuple[Mutant, ...]:
    """Return the rows of the table; raise errors.BadInput, in one line, for a bad row."""
    rows = []
    for _, where, row in read_rows([path], Mutant):
        if row.program not in PROGRAMS:
            nearest = did_you_mean(row.program, PROGRAMS)
            raise errors.BadInput(f"{where}: there is no program {row.program}{nearest}")
        if row.level not in (None, *LEVELS) or bool(row.level) != bool(row.test):
            raise errors.BadInput(f"{where}: level is 1 or 2 and test is given, or neither")
        if bool(row.level) == bool(row.why):
            raise errors.BadInput(f"{where}: why is for a mutant that no test finds")
        rows.append(row)
    return tuple(rows)


MUTANTS = load()
BY_NAME = {row.name: row for row in MUTANTS}


# --- run -----------------------------------------------------------------------------------------


def write_programs(directory: Path, data: Path, mutants: Iterable[Mutant]) -> list[Path]:
    """Write the programs with and without mistakes; return the TOML files, one a level."""
    directory.mkdir(parents=True)
    chosen = list(mutants)
    used = {row.program for row in chosen}
    bases = [Mutant(name, name, "", (), ()) for name in PROGRAMS if name in used]
    written = []
    for row in (*bases, *chosen):
        (directory / f"{row.name}.py").write_text(row.source, encoding="utf-8")
        for level in LEVELS:
            path = directory / f"{row.name}_{level}.toml"
            path.write_text(description(row, level, data), encoding="utf-8")
            written.append(path)
    return written


def description(row: Mutant, level: int, data: Path) -> str:
    args = list(row.base.args) if level == 2 else [f"--data={data}"]
    lines = [f'program = "{row.name}.py"', f"args = {json.dumps(args)}"]
    lines += [row.base.declares] if level == 2 else [row.declares]
    lines += ['env = { TF_USE_LEGACY_KERAS = "1" }', 'spawn = "fork"']
    return "\n".join(filter(None, lines)) + "\n"


# --- results -------------------------------------------------------------------------------------

COLUMNS = (
    Column("program"),
    Column("mistake"),
    Column("level", right=True),
    Column("found by"),
    Column("tests that fail", right=True),
)
NOTE = (
    "level: the lowest at which a test fails that passes for the program without the mistake. "
    "tests that fail: at level 1, at level 2."
)


def failed_tests(runs: Iterable[RunFrames]) -> dict[str, dict[int, set[str]]]:
    """Return program or mutant -> level -> names of the tests that failed."""
    found: dict[str, dict[int, set[str]]] = {}
    verdicts = pd.concat([run.verdicts for run in runs])
    for row in verdicts.to_dict("records"):
        name, _, level = row["trainer"].rpartition("_")
        tests = found.setdefault(name, {}).setdefault(int(level), set())
        if row["verdict"] == FAILED:
            tests.add(re.sub(r"\[.*", "", row["test"].split("::")[-1]))
    return found


def detections(failed: Mapping[str, Mapping[int, set[str]]], mutant: Mutant) -> dict[int, set[str]]:
    """Return level -> tests that fail for the mutant and pass without the mistake."""
    base, own = failed.get(mutant.program, {}), failed[mutant.name]
    known = set(mutant.base.fails)
    return {level: own.get(level, set()) - base.get(level, set()) - known for level in LEVELS}


def deviations(runs: Sequence[RunFrames]) -> list[str]:
    """Return in a line each what differs from the rows."""
    failed, lines = failed_tests(runs), []
    for base in BASES:
        for level, tests in sorted(failed.get(base.name, {}).items()):
            unknown = sorted(tests - base.fails.keys())
            lines += [f"{base.name}, level {level}: {test} fails" for test in unknown]
    for row in MUTANTS:
        if row.name not in failed:
            continue
        found = detections(failed, row)
        level = next((level for level in LEVELS if found[level]), None)
        if level != row.level:
            lines.append(f"{row.name}: found at level {level}, not {row.level}")
        elif level and row.test not in found[level]:
            lines.append(f"{row.name}: found by {', '.join(sorted(found[level]))}, not {row.test}")
    return lines


def table(runs: Sequence[RunFrames]) -> Table:
    """Return a row for each mutant of these runs. Raise BadInput if there are none."""
    failed = failed_tests(runs)
    rows = []
    for mutant in MUTANTS:
        if mutant.name not in failed:
            continue
        found = detections(failed, mutant)
        level = next((level for level in LEVELS if found[level]), None)
        named = mutant.test if level and mutant.test in found[level] else ""
        tests = named or ", ".join(sorted(found[level] if level else ())) or f"none: {mutant.why}"
        counts = ", ".join(str(len(found[each])) for each in LEVELS)
        cells = (mutant.program, mutant.mistake, str(level or ""), tests, counts)
        rows.append(Row(mutant.name, cells))
    if not rows:
        raise BadInput("the runs have no mutants; measure with run-mutants")
    return Table("", COLUMNS, tuple(rows), NOTE)
