"""The catalog of mutants: the rows of trainers.toml and machinery.toml.

A mutant is one file of the checkout with one mistake. A test that the row names must fail for it:
a mutant that only another test finds is missed. A mutant whose training computes the same is
equivalent, and its run must prove that by equal digests of the weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from reference_trainers import BY_NAME
from suite.harness.core.errors import BadInput
from suite.harness.core.paths import ROOT
from suite.harness.tables.toml_schema import did_you_mean
from suite.mutants.edits import edited, read_rows

TRAINERS, MACHINERY = "trainers", "machinery"
KINDS = (TRAINERS, MACHINERY)
FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file. `old` and `new` have a text each for each edit, in order.

    `old` occurs once in the file. `tests` are node ids without parameters; one of them must fail.
    `claim` is the promise that the mistake breaks (mutants of trainers). `options` are further
    arguments of pytest. `equivalent` is the reason why training computes the same.
    """

    name: str
    file: str
    mistake: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    tests: tuple[str, ...]
    claim: str = ""
    trainer: str = ""  # default: the name of the file
    options: tuple[str, ...] = ()
    tensorflow: str = ""  # PEP 440 specifier of the versions that can run it
    equivalent: str = ""
    kind: str = MACHINERY

    def source(self, original: str) -> str:
        """Return the file's text with the mistake; raise BadInput if an edit does not fit."""
        try:
            return edited(self.name, original, zip(self.old, self.new, strict=True))
        except ValueError as error:
            raise BadInput(f"{error} in {self.file}") from error


def load(kinds: Iterable[str] = KINDS, folder: Path = FOLDER) -> tuple[Mutant, ...]:
    """Return the rows in the order of their files; raise BadInput, in one line, for a bad row."""
    paths = [folder / f"{kind}.toml" for kind in kinds]
    return tuple(
        _checked(where, replace(row, kind=path.stem))
        for path, where, row in read_rows(paths, Mutant)
    )


def _checked(where: str, row: Mutant) -> Mutant:
    path = ROOT / row.file
    if not path.is_file():
        raise BadInput(f"{where}: there is no file {row.file}")
    row.source(path.read_text(encoding="utf-8"))
    if row.kind == MACHINERY:
        return row
    row = replace(row, trainer=row.trainer or path.stem)
    if row.trainer not in BY_NAME:
        nearest = did_you_mean(row.trainer, BY_NAME)
        raise BadInput(f"{where}: there is no trainer {row.trainer}{nearest}")
    if not row.claim:
        raise BadInput(f"{where}: claim is missing")
    return row
