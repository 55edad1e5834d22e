"""Tests of the catalog of mutants: each has one mistake, and a run is held to its row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.rundir.frame import BadInput, RunFrames
from suite.campaigns import __main__ as command
from suite.campaigns import mutants
from suite.harness.core import errors
from suite.harness.core.settings import Settings
from suite.harness.tables import programs
from suite.meta import made_up_pair

FOUND = next(row for row in mutants.MUTANTS if row.level == 1)
PASSED = "test_every_task_exits_with_success"


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda row: row.name)
def test_mutant_differs_from_its_program_and_compiles(mutant: mutants.Mutant):
    assert mutant.source != mutant.base.source
    compile(mutant.source, mutant.name, "exec")


ROW = """
[[mutant]]
name = "one"
program = "mirrored"
mistake = "it is wrong"
old = ["a"]
new = ["b"]
"""


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("", "mutant is missing"),
        (ROW.replace("mirrored", "miror"), "no program miror (did you mean 'mirrored'?)"),
        (ROW.replace('["b"]', '["b", "c"]'), "one: old has 1 texts, new has 2"),
        (ROW + "level = 3\ntest = 't'", "one: level is 1 or 2 and test is given, or neither"),
        (ROW + "level = 1", "one: level is 1 or 2 and test is given, or neither"),
        (ROW + "test = 't'", "one: level is 1 or 2 and test is given, or neither"),
        (ROW, "one: why is for a mutant that no test finds"),
        (ROW + "level = 1\ntest = 't'\nwhy = 'x'", "one: why is for a mutant that no test finds"),
        ((ROW + "why = 'x'") * 2, "one: the name is there twice"),
        (ROW + "leve = 1", "one: unknown key 'leve'"),
        (ROW + "level = '1'", "one: level must be a int, not '1'"),
    ],
)
def test_bad_row_is_one_line(tmp_path: Path, rows: str, says: str):
    path = tmp_path / "programs.toml"
    path.write_text(rows, encoding="utf-8")
    with pytest.raises(errors.BadInput) as error:
        mutants.load(path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_edit_must_fit_the_program():
    twice = replace(FOUND, old=("import",), new=("import",))
    with pytest.raises(ValueError, match="'import' occurs"):
        _ = twice.source


def test_programs_are_examined_at_both_levels_by_the_approach_of_their_source(tmp_path: Path):
    files = mutants.write_programs(tmp_path / "programs", tmp_path / "data.npz", mutants.MUTANTS)
    found = programs.programs(map(str, files))
    assert len(found) == len(mutants.LEVELS) * (len(mutants.MUTANTS) + len(mutants.BASES))
    for program in found:
        level = int(program.row.name[-1])
        assert programs.LEVELS.index(program.row.level) == level
    names = {program.row.name[:-2]: program.approach for program in found}
    assert all(names[row.name] == names[row.program] for row in mutants.MUTANTS)
    assert Settings().trainers == ()


def run_of(*verdicts: tuple[str, str, str]) -> RunFrames:
    """Return a run with (trainer, test, verdict) rows."""
    rows = [
        {
            "trainer": trainer,
            "test": f"suite/t.py::{test}[{trainer}]",
            "verdict": verdict,
        }
        for trainer, test, verdict in verdicts
    ]
    return made_up_pair.run("recorded", verdict_dicts=rows)


def base(verdict: str = "passed", test: str = FOUND.test) -> tuple[str, str, str]:
    return f"{FOUND.program}_1", test, verdict


def mutated(verdict: str, test: str = FOUND.test, level: int = 1) -> tuple[str, str, str]:
    return f"{FOUND.name}_{level}", test, verdict


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        ([base(), mutated("failed")], ""),
        ([base(), mutated("passed")], "found at level None, not 1"),
        ([base(), mutated("failed", level=2)], "found at level 2, not 1"),
        ([base(), mutated("failed", PASSED)], f"found by {PASSED}, not {FOUND.test}"),
        ([base("failed"), mutated("failed")], "found at level None, not 1"),
        ([base(test=PASSED), base("failed", PASSED), mutated("failed")], f"{PASSED} fails"),
    ],
)
def test_run_is_held_to_the_rows(verdicts: list[tuple[str, str, str]], line: str):
    lines = mutants.deviations([run_of(*verdicts)])
    assert bool(lines) == bool(line), lines
    assert line in " ".join(lines)


def test_table_names_the_test_and_counts():
    failing = [mutated("failed"), mutated("failed", level=2), mutated("failed", PASSED, level=2)]
    (row,) = mutants.table([run_of(base(), *failing)]).rows
    assert row.cells == (FOUND.program, FOUND.mistake, "1", FOUND.test, "1, 2")
    with pytest.raises(BadInput, match="no mutants"):
        mutants.table([run_of(("single_process_1", PASSED, "passed"))])


def test_unknown_mutant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["run-mutants", str(tmp_path), "--data", "x.npz", "--only", "nothing"]
    assert command.main(arguments) == command.BAD_INPUT
    assert "no mutant 'nothing'" in capsys.readouterr().err
