"""Select the cases (trainer, backend, Keras flavor) of each test from rows, never from names.

A test states its needs (`@pytest.mark.cases(...)`). Every row that meets them becomes a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pytest

from reference_trainers import TRAINERS, Trainer
from suite.harness.ab.sides import document_of
from suite.harness.core.case import Case
from suite.harness.core.settings import Settings
from suite.harness.core.versions import NO_KERAS
from suite.harness.pytest_plugin import vocabulary
from suite.harness.scenarios import published_runs, reproductions, small_programs
from suite.harness.tables.claims import Claims
from suite.harness.tables.programs import BLACK_BOX, LENGTH, LENGTHS

# `@scenario(scene)`: the fixture `outcome` returns the outcome of that scenario; with several
# scenarios, of each in turn. pytest.mark.scenario(scene) would mark a single function instead of
# taking it as an argument.
scenario = pytest.mark.scenario.with_args

# Scenarios of programs of the suite, which show what TensorFlow does: no other program is in them.
ABOUT_TENSORFLOW = tuple(
    module.__name__ for module in (small_programs, published_runs, reproductions)
)
EITHER = {LENGTH: "{epochs} or {steps-per-epoch}"}
FOR_OWN_TRAINERS = "not possible: they use what only the suite's own trainers have"


@dataclass(frozen=True)
class Needs:
    """The arguments of `@pytest.mark.cases`: properties of a row that a test needs."""

    events: Sequence[str] = ()
    flags: Sequence[str] = ()
    families: Sequence[str] = ()
    distributed: bool | None = None
    several: bool | None = None  # replicas, on tasks or on devices
    synchronous: bool | None = None  # workers in lock-step
    of_user: bool | None = None  # programs of users
    aggregates: bool | None = None  # a step applies gradients of any workers
    fit: bool | None = None  # trains by Keras' Model.fit
    documented: bool = False  # the document's snippets exist, see document_of
    backends: str = "first"  # of the row: first or each
    # What a user's program must let the suite know and set: at least this level. Controls,
    # deterministic and equivalent imply "declared". With none of these, the test is for the
    # suite's own trainers only.
    level: str = ""
    controls: Sequence[str] = ()  # PLACEHOLDERS of programs.py, as flags, or LENGTH
    deterministic: bool = False  # the same seed gives the same weights
    equivalent: bool = False  # N workers make the steps of one worker with N times the batch
    # Keras flavors: each; first, for tests of TensorFlow only; full: each in a benchmark run.
    flavors: str = "each"

    @classmethod
    def read(cls, where: str, keywords: Mapping[str, Any], claims: Claims) -> Needs:
        """Return the needs that `@pytest.mark.cases` states. Raise BadInput for an unknown name."""
        vocabulary.check_keywords(where, keywords, [field.name for field in fields(cls)])
        return vocabulary.check_needs(where, cls(**keywords), claims)

    def met_by(self, row: Trainer) -> bool:
        return self.apply_to(row) and not self.lacking(row)

    def lacking(self, row: Trainer) -> str:
        """Return what keeps this test from examining a user's program, as what to do about it.

        "": nothing does.
        """
        if not row.of_user:
            return ""
        if not (self.level or self.controls or self.deterministic or self.equivalent):
            return FOR_OWN_TRAINERS
        if self.level != BLACK_BOX and row.level == BLACK_BOX:
            return "let an observer watch the program: leave out observe = false"
        missing = [name for name in self.controls if not _takes(row, name)]
        if missing:
            names = " and ".join(EITHER.get(name) or f"{{{name}}}" for name in missing)
            return f"give the program arguments with {names.replace('-', '_')}"
        if self.deterministic and not row.deterministic:
            return "say deterministic = true, if the same seed gives the same weights"
        if self.equivalent and not row.equivalent:
            return (
                "say equivalent = true, if N workers make the steps of one with N times the batch"
            )
        return ""

    def apply_to(self, row: Trainer) -> bool:
        """Return True if the test is about the approach of this row."""
        return (
            set(self.events) <= set(row.events)
            and (row.of_user or set(self.flags) <= set(row.flags))
            and (not self.families or bool(set(self.families) & set(row.families)))
            and self.distributed in (None, bool(row.jobs))
            and self.several in (None, row.several)
            and self.synchronous in (None, row.synchronous)
            and self.of_user in (None, row.of_user)
            and self.aggregates in (None, row.aggregates)
            and self.fit in (None, row.fit)
            and (not self.documented or document_of(row).exists())
        )


def is_about_tensorflow(scene: Callable[..., Any]) -> bool:
    """Return True for a scenario of a program of the suite, which shows what TensorFlow does."""
    return scene.__module__ in ABOUT_TENSORFLOW


def flavors_of(row: Trainer, wanted: Sequence[str], installed: Sequence[str]) -> Sequence[str]:
    """Return the flavors that a row is examined with, of those that the test wants.

    A user's program is examined with the one that it imports: Keras 3, unless its source says
    otherwise; without Keras 3, the one of TensorFlow.
    """
    if not row.of_user:
        return wanted if row.keras else (NO_KERAS,)
    return next(((name,) for name in (row.flavor, "keras3") if name in installed), installed[:1])


def _takes(row: Trainer, control: str) -> bool:
    """Return True if a user's program has an argument with that placeholder."""
    return not {control, *(LENGTHS if control == LENGTH else ())}.isdisjoint(row.flags)


def select(
    needs: Needs,
    settings: Settings,
    flavors: Iterable[str],
    rows: Sequence[Trainer] = TRAINERS,
) -> list[Case]:
    """Return the cases of a test: rows that meet its needs, by requested backend and flavor."""
    found = []
    installed = flavors = tuple(flavors)
    if needs.flavors == "first" or (needs.flavors == "full" and not settings.full):
        flavors = flavors[:1]
    for row in rows:
        asked = row.of_user or not settings.trainers or row.name in settings.trainers
        if not (asked and needs.met_by(row)):
            continue
        requested = [b for b in row.backends if not settings.backends or b in settings.backends]
        if row.backends == ("none",):
            requested = ["none"]
        if needs.backends == "first":
            requested = requested[:1]
        found += [
            Case(row, backend, keras)
            for backend in requested
            for keras in flavors_of(row, flavors, installed)
        ]
    return found
