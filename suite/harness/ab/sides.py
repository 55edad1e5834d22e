"""What a paired comparison compares: `--base` and `--new`, of one kind, all else being equal.

A kind is a row of KINDS. The new side is the case that a test gets, chosen by the option that a
kind stands for; the base is the same case with that one thing replaced.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_trainers import BY_NAME, Trainer
from suite.harness.core import backends
from suite.harness.core.errors import BadInput, HarnessError
from suite.harness.core.paths import ROOT
from suite.harness.core.versions import FLAVOURS, NO_KERAS
from suite.harness.environment import interpreter as environments
from suite.harness.environment.interpreter import Interpreter

if TYPE_CHECKING:
    from suite.harness.core.case import Case

SAME = "same"
DOCUMENTED = "documented"
# The program that makes the bare calls of a document, and where it has them, by trainer.
AS_DOCUMENTED = str(ROOT / "suite" / "programs" / "as_documented.py")
DOCUMENTS = ROOT / "suite" / "programs" / "documents"
# tf_keras is what Keras 2 has become: across versions one is the other's counterpart.
COUNTERPARTS = {"keras2": "tf_keras", "tf_keras": "keras2"}


@dataclass(frozen=True)
class Kind:
    """What can be compared: the option that names it, and its names, as far as they are known."""

    name: str
    option: str  # attribute of the parsed options that chooses the new side
    known: Iterable[str] = ()


KINDS = (
    Kind("same", "", (SAME,)),
    Kind("document", "", (DOCUMENTED,)),
    Kind("trainer", "trainer", tuple(BY_NAME)),
    Kind("backend", "backend", tuple(backends.BY_NAME)),
    Kind("keras", "keras", FLAVOURS),
    Kind("python", "python"),  # any other name is an interpreter's
)


def kind_of(option: str, name: str) -> Kind:
    """Which of KINDS a name is of; BadInput for one of none."""
    for kind in KINDS:
        if name in kind.known:
            return kind
    if shutil.which(name) is None:
        names = ", ".join(name for kind in KINDS for name in kind.known)
        raise BadInput(f"{option} {name}: no interpreter, and none of {names}")
    return KINDS[-1]


def chosen(base: str | None, new: str | None, options: Any) -> dict[str, Any]:
    """The parsed options that `--new` sets, by attribute; BadInput for what cannot be compared."""
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


def check(base: str | None, scale: float) -> None:
    """BadInput for an interpreter that has no TensorFlow, before anything is measured."""
    if base is not None and kind_of("--base", base).name == "python":
        environments.describe(base, scale)


@dataclass(frozen=True)
class Side:
    """One side: what trains, how, and under which interpreter."""

    name: str  # base or new
    case: Case
    interpreter: Interpreter

    @property
    def trainer(self) -> str:
        """What trains, by name."""
        row = self.case.trainer
        return DOCUMENTED if row.path == AS_DOCUMENTED else row.name

    @property
    def versions(self) -> Mapping[str, str]:
        """Columns of its measurements."""
        found = self.interpreter
        keras = found.label(self.case.keras)
        return {"tensorflow": found.tensorflow, "keras": keras, "python": found.python_version}


def interpreter_of(base: str, interpreter: Interpreter) -> Interpreter:
    """The interpreter of the base side, where that of the new one is this."""
    return environments.describe(base) if kind_of("--base", base).name == "python" else interpreter


def document_of(row: Trainer) -> Path:
    """Where the bare calls of its document stand, with which it can be compared, if they do."""
    return DOCUMENTS / f"{row.name}.py"


def base_of(base: str, case: Case, interpreter: Interpreter) -> Side:
    """The base side of a case, under that interpreter; HarnessError where it has no counterpart.

    Another trainer is compared as it is: with the backend and the Keras of the case where it has
    them, else with its own first, and with its own workers. A ratio is of steps, whatever is in
    them.
    """
    kind, row = kind_of("--base", base), case.trainer
    if kind.name == "document" and not document_of(row).exists():
        told = f"the bare calls of {row.name}'s document are not in {document_of(row)}"
        raise HarnessError(told)
    if kind.name == "backend" and base not in row.backends:
        raise HarnessError(f"{row.name} has no backend {base} to compare {case.backend} with")
    if kind.name == "keras" and not row.keras:
        raise HarnessError(f"{row.name} does without Keras, so it has no {base} to compare with")
    changes: dict[str, Any] = {
        "document": lambda: {"trainer": replace(row, path=AS_DOCUMENTED)},
        "trainer": lambda: _another(BY_NAME[base], case, interpreter),
        "backend": lambda: {"backend": base},
        "keras": lambda: {"keras": base},
        "python": lambda: {"keras": _counterpart(case.keras, interpreter)},
    }.get(kind.name, dict)()
    side = Side("base", replace(case, **changes), interpreter)
    keras = side.case.keras
    if side.case.trainer.keras and keras not in interpreter.flavours:
        raise HarnessError(f"{interpreter.python} has no {keras} to compare {case.keras} with")
    return side


def comparable(
    base: str, cases: Iterable[Case], interpreter: Interpreter
) -> tuple[list[Case], list[str]]:
    """Those of the cases that have a counterpart on the base side, and why the others have none."""
    found, reasons = [], []
    interpreter = interpreter_of(base, interpreter)
    for case in cases:
        try:
            base_of(base, case, interpreter)
        except HarnessError as error:
            reasons.append(f"{case.id}: {error}")
        else:
            found.append(case)
    return found, reasons


def _another(row: Trainer, case: Case, interpreter: Interpreter) -> dict[str, Any]:
    first = next(iter(interpreter.flavours), NO_KERAS)
    flavour = case.keras if case.keras != NO_KERAS else first
    return {
        "trainer": row,
        "backend": case.backend if case.backend in row.backends else row.backends[0],
        "keras": flavour if row.keras else NO_KERAS,
    }


def _counterpart(flavour: str, interpreter: Interpreter) -> str:
    return flavour if flavour in interpreter.flavours else COUNTERPARTS.get(flavour, flavour)
