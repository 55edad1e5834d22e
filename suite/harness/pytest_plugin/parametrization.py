"""Select the cases (trainer, backend, Keras flavor) of each test from rows, never from names.

A test states its needs (`@pytest.mark.cases(...)`). Every row that meets them becomes a case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pytest

from reference_trainers import TRAINERS, Trainer
from suite.harness.ab.sides import document_of
from suite.harness.core.case import Case
from suite.harness.core.settings import Settings
from suite.harness.core.versions import NO_KERAS
from suite.harness.pytest_plugin import vocabulary
from suite.harness.tables.claims import Claims

# `@scenario(scene)`: the fixture `outcome` returns the outcome of that scenario; with several
# scenarios, of each in turn. pytest.mark.scenario(scene) would mark a single function instead of
# taking it as an argument.
scenario = pytest.mark.scenario.with_args


@dataclass(frozen=True)
class Needs:
    """The arguments of `@pytest.mark.cases`: properties of a row that a test needs."""

    events: Sequence[str] = ()
    flags: Sequence[str] = ()
    families: Sequence[str] = ()
    distributed: bool | None = None
    several: bool | None = None  # replicas, on tasks or on devices
    synchronous: bool | None = None  # workers in lock-step
    aggregates: bool | None = None  # a step applies gradients of any workers
    fit: bool | None = None  # trains by Keras' Model.fit
    documented: bool = False  # the document's snippets exist, see document_of
    backends: str = "first"  # of the row: first or each
    # Keras flavors: each; first, for tests of TensorFlow only; full: each in a benchmark run.
    flavors: str = "each"

    @classmethod
    def read(cls, where: str, keywords: Mapping[str, Any], claims: Claims) -> Needs:
        """Return the needs that `@pytest.mark.cases` states. Raise BadInput for an unknown name."""
        vocabulary.check_keywords(where, keywords, [field.name for field in fields(cls)])
        return vocabulary.check_needs(where, cls(**keywords), claims)

    def met_by(self, row: Trainer) -> bool:
        return (
            set(self.events) <= set(row.events)
            and set(self.flags) <= set(row.flags)
            and (not self.families or bool(set(self.families) & set(row.families)))
            and self.distributed in (None, bool(row.jobs))
            and self.several in (None, row.several)
            and self.synchronous in (None, row.synchronous)
            and self.aggregates in (None, row.aggregates)
            and self.fit in (None, row.fit)
            and (not self.documented or document_of(row).exists())
        )


def select(
    needs: Needs,
    settings: Settings,
    flavors: Iterable[str],
    rows: Sequence[Trainer] = TRAINERS,
) -> list[Case]:
    """Return the cases of a test: rows that meet its needs, by requested backend and flavor."""
    found = []
    flavors = tuple(flavors)
    if needs.flavors == "first" or (needs.flavors == "full" and not settings.full):
        flavors = flavors[:1]
    for row in rows:
        if (settings.trainers and row.name not in settings.trainers) or not needs.met_by(row):
            continue
        requested = [b for b in row.backends if not settings.backends or b in settings.backends]
        if row.backends == ("none",):
            requested = ["none"]
        if needs.backends == "first":
            requested = requested[:1]
        found += [
            Case(row, backend, keras)
            for backend in requested
            for keras in (flavors if row.keras else (NO_KERAS,))
        ]
    return found
