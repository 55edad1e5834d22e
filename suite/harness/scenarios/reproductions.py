"""Define one scenario for each standalone reproduction of a finding (docs/findings/NAME.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from suite.harness.core.case import Case
from suite.harness.core.history import Run
from suite.harness.core.paths import ROOT
from suite.harness.scenarios.base import Launch
from suite.harness.scenarios.small_programs import NOT_TAKEN, alone, finished
from suite.harness.tables.expectations import Expectations

FINDINGS = ROOT / "docs" / "findings"


def reproductions(directory: Path = FINDINGS) -> list[Callable[[Launch], Run]]:
    """Return a scenario for each reproduction, in the order of names."""
    return [_scenario(path) for path in sorted(directory.glob("*.py"))]


def _scenario(path: Path) -> Callable[[Launch], Run]:
    rows = [row for row in Expectations.load().rows if row.finding == path.stem]
    by_flavor = all(row.keras for row in rows) and bool(rows)

    def run(launch: Launch) -> Run:
        trainer = alone(launch, "standalone")
        flags = {**NOT_TAKEN, "program": path}
        return finished(launch, trainer, backend="none", flags=flags)

    def means(case: Case) -> bool:
        """Return True unless the same result was established with another Keras flavor."""
        return by_flavor or case.keras != "keras3"

    run.__name__ = path.stem
    run.means = means  # type: ignore[attr-defined]
    return run
