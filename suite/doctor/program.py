"""What a run of the suite will make of a user's program: its approach, its level, its tests.

The tests are read from the marks of the test modules, of which none is run.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from reports.core.text import plural
from suite.doctor.findings import Listing
from suite.harness.core.paths import ROOT
from suite.harness.pytest_plugin.parametrization import Needs, is_about_tensorflow
from suite.harness.tables.programs import Program

FOLDERS = ("conformance", "faults", "benchmarks")


@dataclass(frozen=True)
class Examination:
    """Numbers of tests: those that examine the program, and by remedy those that cannot."""

    examined: int
    lacking: Mapping[str, int]


def tests() -> Iterator[tuple[FunctionType, Mapping[str, Any]]]:
    """Yield each test about trainers with its marks by name: mark -> its (args, keywords)."""
    for folder in FOLDERS:
        for path in sorted((ROOT / "suite" / folder).glob("test_*.py")):
            module = importlib.import_module(f"suite.{folder}.{path.stem}")
            for name, function in vars(module).items():
                marks = {mark.name: mark for mark in getattr(function, "pytestmark", ())}
                if name.startswith("test_") and "cases" in marks:
                    yield function, marks


def examine(program: Program) -> Examination:
    """Return how many tests examine the program, and what the others lack."""
    examined, lacking = 0, Counter[str]()
    for _, marks in tests():
        needs = Needs(**marks["cases"].kwargs)
        scenario = marks.get("scenario")
        if not needs.apply_to(program.row) or (scenario and is_about_tensorflow(scenario.args[0])):
            continue
        reason = needs.lacking(program.row)
        examined += not reason
        lacking.update([reason] if reason else [])
    return Examination(examined, dict(lacking.most_common()))


def facts(program: Program, found: Examination) -> list[tuple[str, str]]:
    jobs = ", ".join(f"{count} {job}" for job, count in program.row.jobs) or "1 process"
    return [
        ("Program", str(Path(program.row.program))),
        ("Approach", f"{program.approach}, {program.reason}"),
        ("Level", program.describe().split("; ")[1].removeprefix("level ")),
        ("Cluster", jobs),
        ("Promises of", program.row.like),
        ("Tests", f"{found.examined} examine it, {sum(found.lacking.values())} cannot"),
    ]


def listing(found: Examination) -> Listing:
    """Return the remedies with their numbers of tests, the largest first."""
    entries = tuple((reason, plural(count, "test")) for reason, count in found.lacking.items())
    note = "What only shows in a run, such as an event that never comes, is not listed."
    return Listing("Not examined, and what would make it so", entries, note)
