"""Define the sides of a paired comparison: `--base` and `--new`, of one kind, all else equal.

A kind is a row of KINDS. The new side is the case that a test gets, selected by the option of the
kind. The base is the same case with that one property replaced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_trainers import BY_NAME, Trainer
from suite.harness.core import backends
from suite.harness.core.errors import BadInput, HarnessError
from suite.harness.core.paths import ROOT
from suite.harness.core.versions import FLAVORS, NO_KERAS
from suite.harness.environment.interpreter import Interpreter, describe
from suite.harness.tables import programs

if TYPE_CHECKING:
    from suite.harness.core.case import Case
    from suite.harness.core.settings import Settings

SAME = "same"
DOCUMENTED = "documented"
# The program that runs the snippets of a document, and the folder of snippets, by trainer.
AS_DOCUMENTED = str(ROOT / "suite" / "programs" / "as_documented.py")
DOCUMENTS = ROOT / "suite" / "programs" / "documents"
# tf_keras is the successor of Keras 2: across versions one is the counterpart of the other.
COUNTERPARTS = {"keras2": "tf_keras", "tf_keras": "keras2"}


@dataclass(frozen=True)
class Kind:
    """A kind of comparison: the option that names it, and the known names."""

    name: str
    option: str  # attribute of the parsed options that selects the new side
    known: Iterable[str] = ()


KINDS = (
    Kind("same", "", (SAME,)),
    Kind("document", "", (DOCUMENTED,)),
    Kind("trainer", "trainer", tuple(BY_NAME)),
    Kind("backend", "backend", tuple(backends.BY_NAME)),
    Kind("keras", "keras", FLAVORS),
    Kind("python", "python"),  # any other name is an interpreter
)


def kind_of(option: str, name: str) -> Kind:
    """Return the row of KINDS to which a name belongs. Raise BadInput if there is none."""
    for kind in KINDS:
        if name in kind.known or (kind.name == "trainer" and is_program(name)):
            return kind
    if shutil.which(name) is None:
        names = ", ".join(name for kind in KINDS for name in kind.known)
        raise BadInput(f"{option} {name}: no interpreter, no program, and none of {names}")
    return KINDS[-1]


def is_program(name: str) -> bool:
    """Return True for a file of a user's program; an interpreter has no such ending."""
    return name.endswith((".py", ".toml", ".sh"))


def chosen(base: str | None, new: str | None, options: Any) -> dict[str, Any]:
    """Return the parsed options that `--new` sets, by attribute.

    Raise BadInput if the sides cannot be compared.
    """
    if base is None:
        if new is not None:
            raise BadInput(f"--new {new}: compared with what? give --base as well")
        return {}
    kind = kind_of("--base", base)
    if new is None:
        return {}
    if kind_of("--new", new) != kind:
        raise BadInput(f"--base {base} --new {new}: one is a {kind.name}, the other is not")
    if not kind.option:
        return {}
    if getattr(options, kind.option):
        raise BadInput(f"--new {new}: --{kind.option} is given as well; leave one of them out")
    return {kind.option: new if kind.option == "python" else [new]}


def check(base: str | None, scale: float, variables: Iterable[str] = ()) -> None:
    """Raise BadInput for a base that cannot be measured, before any measurement.

    `variables`: those that only one side has.
    """
    if base is None:
        for text in variables:
            raise BadInput(f"{text}: a variable of one side; compared with what? give --base")
        return
    kind = kind_of("--base", base)
    if kind.name == "python":
        describe(base, scale)
    elif kind.name == "trainer":
        _trainer(base)


@dataclass(frozen=True)
class Side:
    """One side: trainer, configuration, interpreter, and variables that the other side lacks."""

    name: str  # base or new
    case: Case
    interpreter: Interpreter
    variables: Mapping[str, str] = field(default_factory=dict)
    path: str = ""  # of a user's program, if the other side's has the same name: where they differ

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the side's tasks; those that it was given have precedence."""
        return {**self.interpreter.environment(self.case.keras), **self.variables}

    @property
    def assignments(self) -> str:
        """Return the variables as `NAME=VALUE`, with blanks between."""
        return " ".join(f"{name}={value}" for name, value in self.variables.items())

    @property
    def trainer(self) -> str:
        """Return the name of the trainer, or the path if the name does not identify it."""
        row = self.case.trainer
        return DOCUMENTED if makes_documents_calls(row) else self.path or row.name

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the version columns of this side's measurements."""
        found = self.interpreter
        keras = found.label(self.case.keras)
        return {"tensorflow": found.tensorflow, "keras": keras, "python": found.python_version}


def with_variables(side: Side, settings: Settings) -> Side:
    """Return the side with the variables that --base-env or --new-env give it."""
    given = {"base": settings.base_env, "new": settings.new_env}[side.name]
    return replace(side, variables=dict(text.split("=", 1) for text in given))


def with_paths(base: Side, new: Side, settings: Settings) -> tuple[Side, Side]:
    """Return both sides; two programs with one name get the ends of their paths, as they differ.

    old/train.toml and new/train.toml would both be `train` in a report.
    """
    given = [path for path in settings.trainers if programs.name_of(Path(path)) == new.trainer]
    if base.trainer != new.trainer or not (given and is_program(str(settings.base))):
        return base, new
    paths = [Path(os.path.abspath(name)).parts for name in (str(settings.base), given[0])]
    for count in range(1, max(map(len, paths)) + 1):
        ends = ["/".join(parts[-count:]) for parts in paths]
        if ends[0] != ends[1]:
            return replace(base, path=ends[0]), replace(new, path=ends[1])
    return base, new


def interpreter_of(base: str, interpreter: Interpreter) -> Interpreter:
    """Return the interpreter of the base side; `interpreter` is that of the new side."""
    return describe(base) if kind_of("--base", base).name == "python" else interpreter


def document_of(row: Trainer) -> Path:
    """Return the path of the snippets of the trainer's document, which may not exist."""
    return DOCUMENTS / f"{row.name}.py"


def with_documents_calls(row: Trainer) -> Trainer:
    """Return the program that makes the calls of the trainer's document; it is observed, too."""
    return replace(row, path=AS_DOCUMENTED, plain=False, observed=True)


def makes_documents_calls(row: Trainer) -> bool:
    return row.path == AS_DOCUMENTED


def base_of(base: str, case: Case, interpreter: Interpreter, new: Interpreter) -> Side:
    """Return the base side of a case, under that interpreter; `new` is that of the new side.

    Raise HarnessError if the case has no counterpart. Another trainer is compared as it is: with
    the case's backend and Keras if it has them, else with its own first ones, and with its own
    workers. A ratio compares steps, whatever a step contains.
    """
    kind, row = kind_of("--base", base), case.trainer
    if kind.name == "document" and not document_of(row).exists():
        missing = f"the bare calls of {row.name}'s document are not in {document_of(row)}"
        raise HarnessError(missing)
    if kind.name == "backend" and base not in row.backends:
        raise HarnessError(f"{row.name} has no backend {base} to compare {case.backend} with")
    if kind.name == "keras" and not row.keras:
        raise HarnessError(f"{row.name} does without Keras, so it has no {base} to compare with")
    changes: dict[str, Any] = {
        "document": lambda: {"trainer": with_documents_calls(row)},
        "trainer": lambda: _another(_trainer(base), case, interpreter),
        "backend": lambda: {"backend": base},
        "keras": lambda: {"keras": base},
        "python": lambda: {"keras": _counterpart(case.keras, interpreter, new)},
    }.get(kind.name, dict)()
    side = Side("base", replace(case, **changes), interpreter)
    keras = side.case.keras
    if side.case.trainer.keras and keras not in interpreter.flavors:
        raise HarnessError(f"{interpreter.python} has no {keras} to compare {case.keras} with")
    return side


def comparable(
    base: str, cases: Iterable[Case], interpreter: Interpreter
) -> tuple[list[Case], list[str]]:
    """Return the cases with a counterpart on the base side, and the reasons against the others."""
    found, reasons = [], []
    of_base = interpreter_of(base, interpreter)
    for case in cases:
        try:
            base_of(base, case, of_base, interpreter)
        except HarnessError as error:
            reasons.append(f"{case.id}: {error}")
        else:
            found.append(case)
    return found, reasons


def _trainer(name: str) -> Trainer:
    return programs.read(Path(name)).row if is_program(name) else BY_NAME[name]


def _another(row: Trainer, case: Case, interpreter: Interpreter) -> dict[str, Any]:
    first = next(iter(interpreter.flavors), NO_KERAS)
    flavor = case.keras if case.keras != NO_KERAS else first
    return {
        "trainer": row,
        "backend": case.backend if case.backend in row.backends else row.backends[0],
        "keras": flavor if row.keras else NO_KERAS,
    }


def _counterpart(flavor: str, base: Interpreter, new: Interpreter) -> str:
    """Return the flavor of the base side with which this one is compared.

    It is the same Keras. If the sides have none in common, each is examined with its own.
    """

    def same(name: str) -> str:
        return name if name in base.flavors else COUNTERPARTS.get(name, name)

    if flavor != NO_KERAS and not any(same(name) in base.flavors for name in new.flavors):
        return next(iter(base.flavors), flavor)
    return same(flavor)
