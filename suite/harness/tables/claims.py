"""Documented claims: the rows of suite/claims.toml, which every conformance test names.

A claim is one testable promise with its source, the versions to which it applies, and the trainers
that must satisfy it, including trainers that do not exist yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import NO_KERAS, keras_in, version_in
from suite.harness.tables.toml_schema import (
    check_keys,
    check_predicates,
    check_url,
    convert,
    did_you_mean,
    read_toml,
)

PATH = Path(__file__).resolve().parents[2] / "claims.toml"
ORIGINS = ("document", "guide", "issue", "measured")
ID = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")


@dataclass(frozen=True)
class Claim:
    """One claim; `id` is family/what."""

    id: str
    text: str  # one sentence
    origin: str  # document (implemented by a trainer), guide, issue or measured
    url: str
    tensorflow: str  # PEP 440 specifier of the versions to which it applies
    trainers: tuple[str, ...]  # names, also of future trainers
    keras: str = ""  # as in expectations.toml; "" is any
    since: str = ""  # TensorFlow version since which the promise holds; "" if not recorded
    option: str = ""  # the option of pytest that its tests need, which no usual run has

    @property
    def family(self) -> str:
        return self.id.split("/")[0]

    def made_for(self, tensorflow: str, keras: str) -> bool:
        """Return True if the claim applies to these versions; `keras` is a label, or "none"."""
        return version_in(tensorflow, self.tensorflow) and (
            keras == NO_KERAS or keras_in(keras, self.keras)
        )


@dataclass(frozen=True)
class Claims(Mapping[str, Claim]):
    """All claims by id, in the file's order; an unknown id raises BadInput with the nearest id."""

    rows: tuple[Claim, ...] = ()
    approaches: tuple[str, ...] = ()  # all trainers that claims may name

    @classmethod
    def load(cls, path: Path = PATH) -> Claims:
        """Read and check the table; raise BadInput, in one line, if it is invalid."""
        content = read_toml(path)
        check_keys(path.name, content, {"approaches": list, "claim": list}, ("approaches",))
        approaches = tuple(content["approaches"])
        rows: dict[str, Claim] = {}
        for number, values in enumerate(content.get("claim", []), start=1):
            row = _parse(f"{path.name}, {values.get('id') or f'row {number}'}", values, approaches)
            if row.id in rows:
                raise BadInput(f"{path.name}: {row.id} is there twice")
            rows[row.id] = row
        return cls(tuple(rows.values()), approaches)

    @cached_property
    def by_id(self) -> dict[str, Claim]:
        return {row.id: row for row in self.rows}

    def __getitem__(self, key: str) -> Claim:
        try:
            return self.by_id[key]
        except KeyError:
            raise BadInput(f"unknown claim {key!r}{did_you_mean(key, self.by_id)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, key: object) -> bool:
        return key in self.by_id

    def of(self, trainer: Trainer) -> tuple[Claim, ...]:
        """Return the claims of a trainer; if claims cannot name it, those of its families."""
        if trainer.name in self.approaches:
            return tuple(row for row in self.rows if trainer.name in row.trainers)
        return tuple(row for row in self.rows if row.family in trainer.families)

    def check(self, ids: Iterable[str]) -> None:
        """Raise BadInput for an id that is not in the table."""
        for key in ids:
            self[key]

    def without_test(self, tested: Iterable[str], trainers: Iterable[Trainer]) -> list[Claim]:
        """Return the claims of these existing trainers that no test names."""
        tested = set(tested)
        wanted = {row.id for trainer in trainers for row in self.of(trainer)}
        return [row for row in self.rows if row.id in wanted - tested]


def _is_promised(where: str, claim: Claim) -> bool:
    """Return True if the promise is made for the version since which it holds."""
    try:
        return version_in(claim.since, claim.tensorflow)
    except BadInput as error:
        raise BadInput(f"{where}: since: {error}") from error


def _parse(where: str, values: dict[str, Any], approaches: tuple[str, ...]) -> Claim:
    claim = convert(where, values, Claim)
    check_predicates(where, (claim.tensorflow,), claim.keras)
    if claim.since and not _is_promised(where, claim):
        raise BadInput(f"{where}: since {claim.since} is not in tensorflow {claim.tensorflow}")
    check_url(where, claim.url)
    if not ID.fullmatch(claim.id):
        raise BadInput(f"{where}: an id reads family/what, in lower case")
    if claim.origin not in ORIGINS:
        raise BadInput(f"{where}: origin must be one of {', '.join(ORIGINS)}")
    for name in claim.trainers:
        if name not in approaches:
            raise BadInput(f"{where}: no approach {name!r}{did_you_mean(name, approaches)}")
    return claim
