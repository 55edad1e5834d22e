"""The support matrix as data: one result for each check and column, and cells that sum them up."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reports.core import labels, verdicts
from reports.core.verdicts import BY_NAME
from reports.matrix.columns import NO_KERAS, Column, by_column
from reports.rundir import compact
from reports.rundir.compact import Published
from reports.sections.conformance import folder

NO_REASON = "no reason was recorded"
STALE = "stale expectation"


@dataclass(frozen=True)
class State:
    """What a cell says, by sign and word; `name` is the class of its color."""

    name: str
    word: str
    mark: str
    meaning: str

    def counted(self, count: int) -> str:
        """Return `1 works`, `2 work`, `2 not run`."""
        word = "work" if self.word == "works" and count != 1 else self.word
        return f"{count} {word}"


WORKS = State("passed", "works", BY_NAME[verdicts.PASSED].mark, "the promise held")
KNOWN_DEVIATION = State(
    "known_deviation",
    "known deviation",
    BY_NAME[verdicts.KNOWN_DEVIATION].mark,
    "differs from the promise in a way that the linked thread describes",
)
BROKEN = State("failed", "broken", BY_NAME[verdicts.FAILED].mark, "the promise did not hold")
UNSUPPORTED = State(
    "unsupported",
    "unsupported",
    BY_NAME[verdicts.UNSUPPORTED].mark,
    "this version or machine cannot do it, and reports so",
)
NOT_RUN = State("not_run", "not run", "·", "there is no result")
# From the worst to the best: a cell shows the first one present. What did not run is no result, so
# it shows only where nothing ran.
STATES = (BROKEN, KNOWN_DEVIATION, UNSUPPORTED, WORKS, NOT_RUN)
OF_VERDICT: Mapping[str, State] = {
    verdicts.PASSED: WORKS,
    verdicts.UNEXPECTED_PASS: WORKS,
    verdicts.KNOWN_DEVIATION: KNOWN_DEVIATION,
    verdicts.UNSUPPORTED: UNSUPPORTED,
    verdicts.FAILED: BROKEN,
    verdicts.HARNESS_ERROR: NOT_RUN,
}


@dataclass(frozen=True)
class Result:
    """The result of one check in one column; `suite` is the version of the suite that gave it."""

    state: State
    reason: str = ""
    url: str = ""
    reproduce: str = ""
    suite: str = ""
    stale: bool = False  # True if an expected deviation did not occur


ABSENT = Result(NOT_RUN, "this check was not run with these versions")


@dataclass(frozen=True)
class Cell:
    """Results that are shown as one: the worst, with its count."""

    results: tuple[Result, ...]

    @cached_property
    def counts(self) -> Counter[State]:
        return Counter(result.state for result in self.results)

    @property
    def state(self) -> State:
        return next((state for state in STATES if self.counts[state]), NOT_RUN)

    @property
    def stale(self) -> bool:
        return any(result.stale for result in self.results)

    def figures(self) -> str:
        """Return `3 of 59` if the results differ; what did not run is counted separately."""
        missing = self.counts[NOT_RUN]
        examined = len(self.results) - missing
        count = self.counts[self.state]
        parts = [f"{count} of {examined}" if count < examined else ""]
        parts += [NOT_RUN.counted(missing) if missing and examined else ""]
        return ", ".join(filter(None, parts))

    def words(self) -> str:
        """Return every state with its count, the worst first."""
        return ", ".join(s.counted(self.counts[s]) for s in STATES if self.counts[s])


@dataclass(frozen=True, eq=False)
class Check:
    """One test of one approach, with its results by column; a column without one was not run."""

    approach: str
    test: str  # without the Keras flavor, which is the column's
    claims: tuple[str, ...]
    fault: str
    variant: str
    results: Mapping[Column, Result]

    @property
    def property(self) -> str:
        return labels.property_of(self.test)

    @cached_property
    def is_about_faults(self) -> bool:
        return folder(self.test)[1] == "faults"

    @cached_property
    def anchor(self) -> str:
        return f"t-{_digest(self.approach, self.test)}"

    @cached_property
    def words(self) -> str:
        """Return the test's name in words: `loss falls (auto)`."""
        name, _, case = labels.short_name(self.test).partition("[")
        parts = [p for p in case.removesuffix("]").replace(self.approach, "").split("-") if p]
        named = name.removeprefix("test_").replace("_", " ")
        return f"{named} ({'-'.join(parts)})" if parts else named

    def result(self, column: Column) -> Result:
        return self.results.get(column, ABSENT)

    def reproduce(self) -> str:
        """Return the command that runs the check alone, as recorded in its newest column."""
        recorded = [own.reproduce for own in self.results.values() if own.reproduce]
        return compact.portable(recorded[-1]) if recorded else ""


@dataclass(frozen=True)
class Reason:
    """Checks with one state, reason and link, with the columns of each."""

    state: State
    text: str
    url: str
    stale: bool
    checks: tuple[tuple[Check, tuple[Column, ...]], ...]

    @property
    def anchor(self) -> str:
        return reason_anchor(self.state, self.text, self.url)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(sorted({c for _, own in self.checks for c in own}, key=lambda c: c.order))


@dataclass(frozen=True)
class Matrix:
    """All checks, sorted by approach and property; the columns go from the oldest to the newest.

    `loads` are the checks that save files for other versions or load theirs, which say nothing
    about the approach on one version.
    """

    columns: tuple[Column, ...]
    checks: tuple[Check, ...]
    published: Mapping[Column, Published]
    loads: tuple[Check, ...] = ()

    @cached_property
    def approaches(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(check.approach for check in self.checks))

    @cached_property
    def claims(self) -> tuple[str, ...]:
        every = (*self.checks, *self.loads)
        return tuple(sorted({claim for check in every for claim in check.claims}))

    @cached_property
    def faults(self) -> tuple[str, ...]:
        return tuple(sorted({check.fault for check in self.checks if check.fault}))

    @cached_property
    def by_minor(self) -> dict[str, list[Column]]:
        """Return the columns of each minor version of TensorFlow."""
        found: dict[str, list[Column]] = {}
        for column in self.columns:
            found.setdefault(column.minor, []).append(column)
        return found

    @cached_property
    def flavors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.flavor for column in self.columns))

    def of(
        self,
        *,
        approach: str | None = None,
        claim: str | None = None,
        fault: str | None = None,
        loads: bool = False,
    ) -> tuple[Check, ...]:
        """Return the checks of an approach, a claim or a fault, with `loads` if wanted."""
        return tuple(
            check
            for check in (*self.checks, *(self.loads if loads else ()))
            if (approach in (None, check.approach))
            and (claim is None or claim in check.claims)
            and (fault in (None, check.fault))
        )


def build(published: Iterable[Published]) -> Matrix:
    """Return the matrix of these verdicts; raise BadInput if there is none."""
    columns = by_column(published)
    results: dict[tuple[str, str], dict[Column, Result]] = {}
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for column, own in columns.items():
        for row in own.verdicts.to_dict("records"):
            key = row["trainer"] or "no trainer", _without_keras(row["test"], row["keras"])
            results.setdefault(key, {})[column] = _result(row)
            newest[key] = row
        for entry in (e for info in own.infos for e in info.get("not_examined") or ()):
            key = entry["trainer"], _without_keras(entry["test"], column.keras)
            results.setdefault(key, {}).setdefault(column, Result(NOT_RUN, entry["reason"]))
    every = (_check(*key, newest.get(key, {}), own) for key, own in results.items())
    checks, loads = [], []
    for check in sorted(every, key=_order):
        (loads if check.property == labels.OTHER_VERSIONS else checks).append(check)
    return Matrix(tuple(columns), tuple(checks), columns, tuple(loads))


def _check(
    approach: str, test: str, row: Mapping[str, Any], results: Mapping[Column, Result]
) -> Check:
    claims = row.get("claims")
    names = () if claims is None else tuple(claims)
    return Check(approach, test, names, row.get("fault", ""), row.get("variant", ""), results)


def _result(row: Mapping[str, Any]) -> Result:
    verdict, reason = row["verdict"], row["reason"]
    state = OF_VERDICT[verdict]
    if state is not WORKS and not reason:
        reason = NO_REASON
    if verdict == verdicts.HARNESS_ERROR:
        reason = f"{BY_NAME[verdict].meaning}: {reason}"
    stale = verdict == verdicts.UNEXPECTED_PASS
    return Result(state, reason, row["url"], row["reproduce"], row["suite"], stale)


def _order(check: Check) -> tuple[Any, ...]:
    return check.approach, folder(check.test), check.property, check.test


def _without_keras(test: str, keras: str) -> str:
    """Return a test id without the Keras flavor at its end, so that columns have the same ids."""
    flavor = keras.split()[0] if keras else NO_KERAS
    return re.sub(rf"-{re.escape(flavor)}\]$", "]", test)


def reasons(checks: Iterable[Check], columns: Sequence[Column]) -> list[Reason]:
    """Group results that have a reason by state, reason and link, the worst and commonest first."""
    groups: dict[tuple[State, str, str, bool], dict[Check, list[Column]]] = {}
    for check in checks:
        for column in columns:
            own = check.result(column)
            if own.reason and own is not ABSENT:
                key = own.state, own.reason, own.url, own.stale
                groups.setdefault(key, {}).setdefault(check, []).append(column)
    found = [
        Reason(*key, tuple((check, tuple(own)) for check, own in members.items()))
        for key, members in groups.items()
    ]
    return sorted(found, key=lambda r: (STATES.index(r.state), -len(r.checks), r.text, r.url))


def reason_anchor(state: State, reason: str, url: str) -> str:
    return f"r-{_digest(state.name, reason, url)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def cell(checks: Iterable[Check], column: Column) -> Cell:
    """Return the cell of these checks in a column."""
    return Cell(tuple(check.result(column) for check in checks))


def by_property(checks: Iterable[Check]) -> dict[str, list[Check]]:
    """Return the checks of each property, in their order."""
    found: dict[str, list[Check]] = {}
    for check in checks:
        found.setdefault(check.property, []).append(check)
    return found
