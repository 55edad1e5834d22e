"""Check names in `@pytest.mark.cases` and in trainer rows against the vocabularies of the suite.

A misspelled event, flag or family matches no trainer row, so its test would be deselected silently.
Here it is an error at collection that names the nearest known name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reference_trainers import TRAINERS, Trainer
from reference_trainers.support.events import SCHEMA
from reference_trainers.support.workload import OPTIONAL_FLAGS
from suite.harness.core.backends import BY_NAME as BACKENDS
from suite.harness.core.errors import BadInput
from suite.harness.core.placeholders import flag_names
from suite.harness.tables.claims import Claims
from suite.harness.tables.programs import LENGTH, LEVELS, PLACEHOLDERS
from suite.harness.tables.toml_schema import did_you_mean

if TYPE_CHECKING:
    from suite.harness.pytest_plugin.parametrization import Needs

EACH, FIRST, FULL = "each", "first", "full"


def vocabularies(claims: Claims) -> Mapping[str, frozenset[str]]:
    """Return the known names of each list that a trainer row and `Needs` share."""
    return {
        "events": frozenset(SCHEMA),
        "flags": frozenset(OPTIONAL_FLAGS),
        "families": frozenset(claim.family for claim in claims.rows),
    }


def check_needs(where: str, needs: Needs, claims: Claims) -> Needs:
    """Return `needs`; raise BadInput for a name that no vocabulary has. `where` names the test."""
    for field, known in vocabularies(claims).items():
        _check(f"{where}: cases({field}=...)", getattr(needs, field), known)
    _check(f"{where}: cases(controls=...)", needs.controls, (LENGTH, *flag_names(PLACEHOLDERS)))
    _check(f"{where}: cases(level=...)", [needs.level] if needs.level else [], LEVELS)
    _check(f"{where}: cases(backends=...)", [needs.backends], (FIRST, EACH))
    _check(f"{where}: cases(flavors=...)", [needs.flavors], (EACH, FIRST, FULL))
    return needs


def check_rows(claims: Claims, rows: Iterable[Trainer] = TRAINERS) -> None:
    """Raise BadInput for a name in a trainer row that no vocabulary has."""
    for row in rows:
        where = f"reference_trainers, row {row.name}"
        for field, known in vocabularies(claims).items():
            _check(f"{where}, {field}", getattr(row, field), known)
        _check(f"{where}, backends", row.backends, {*BACKENDS, "none"})


def check_keywords(where: str, keywords: Iterable[str], known: Iterable[str]) -> None:
    """Raise BadInput for an argument that `@pytest.mark.cases` does not take."""
    _check(f"{where}: cases(...)", keywords, known)


def _check(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    if isinstance(names, str):
        raise BadInput(f"{where}: {names!r} is one string; give a tuple: ({names!r},)")
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f"; choose from {', '.join(sorted(known))}"
            raise BadInput(f"{where}: unknown name {name!r}{near}")
