"""What one pytest process holds for all its tests: settings, engine, runs that many tests read.

A run that several tests look at happens once for each case; its failure, too, is everybody's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from suite.harness.cases import Case
from suite.harness.claims import Claims
from suite.harness.cluster import Cluster
from suite.harness.data import Dataset
from suite.harness.engine import Engine
from suite.harness.environments import Interpreter
from suite.harness.expectations import Expectations, Row
from suite.harness.options import Settings

ALL_TESTS = "*"


@dataclass(frozen=True)
class Outcome:
    """What a shared scenario came to: its value, or the exception that ended it."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


@dataclass
class Session:
    """Everything that outlives a test; see the module's docstring."""

    settings: Settings
    interpreter: Interpreter
    engine: Engine
    dataset: Dataset
    claims: Claims
    expectations: Expectations
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def expectation(self, case: Case, test: str) -> Row | None:
        """The row of expectations.toml that speaks of this test here, if there is one."""
        workers = self.engine.topology(case.trainer).workers
        return self.expectations.match(
            case.trainer.name,
            test,
            case.backend,
            self.interpreter.tensorflow,
            self.interpreter.label(case.keras),
            gpu=len(self.engine.gpus) >= len(workers),
            real_mnist=self.dataset.real_mnist,
        )

    def shared(self, case: Case, name: str, make: Callable[[], Any]) -> Any:
        """The value of a scenario for this case, made on first use; raises its error each time."""
        key = (case.id, name)
        if key not in self.outcomes:
            try:
                self.outcomes[key] = Outcome(value=make())
            except Exception as error:  # noqa: BLE001 - handed on, every time it is asked for
                self.outcomes[key] = Outcome(error=error)
        return self.outcomes[key].get()


SESSION = pytest.StashKey[Session]()


@dataclass(frozen=True)
class Launch:
    """`launch` of one test: the engine's, with the test's own case and directory filled in."""

    engine: Engine
    case: Case
    directory: Path  # for model directories; the test's own

    def __call__(self, trainer: Any = None, **how: Any) -> Cluster:
        """A cluster of `trainer` (default: the case's); see `Engine.launch` for the rest."""
        how.setdefault("backend", self.case.backend)
        how.setdefault("keras", self.case.keras)
        return self.engine.launch(trainer or self.case.trainer, **how)
