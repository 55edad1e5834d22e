"""One side of a comparison: a run, or several runs of the same thing, as series and verdicts.

A series has the same key whenever the same measurement is repeated. The versions of TensorFlow,
Keras and Python are not in its key, since they are what is compared. The Keras flavor is, since
Keras 2 and 3 are two ways to train. The collective actually used is not in the key either: one
request may be served in several ways, and the reports have to say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from reports.ab import pairs, ratios
from reports.core.verdicts import BY_NAME, worst
from reports.rundir import conditions, frame
from reports.rundir.frame import BadInput, RunFrames

KEYS = (
    "test",
    "trainer",
    "keras",
    "backend",
    "workers",
    "replicas",
    "fault",
    "variant",
    "metric",
    "unit",
    "better",
)
# Since TensorFlow 2.16 the same Keras has another name; no run has both names.
FLAVORS = {"tf_keras": "keras2"}

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Series:
    """Values of one series on a side: `by_run` has one value per process for each run."""

    key: Mapping[str, Any]  # by KEYS, with the names on this side
    collectives: tuple[str, ...]
    by_run: Mapping[str, Sequence[float]]

    @property
    def values(self) -> list[float]:
        return [value for values in self.by_run.values() for value in values]


@dataclass(frozen=True)
class TestVerdicts:
    """Verdicts of a test in the runs of a side, without repetition."""

    test: str  # id on this side
    verdicts: tuple[str, ...]
    reason: str  # of the worst

    @property
    def words(self) -> str:
        return ", ".join(BY_NAME[name].words for name in self.verdicts)


@dataclass(frozen=True)
class Side:
    """Runs of one thing on one machine, with their series and tests."""

    runs: tuple[RunFrames, ...]
    series: Mapping[Key, Series]
    tests: Mapping[str, TestVerdicts]
    controls: pd.DataFrame = field(default_factory=pd.DataFrame)  # rows of pairs.CONTROL

    @property
    def machine(self) -> str:
        return _machine(self.runs[0])

    @property
    def versions(self) -> str:
        return _versions(self.runs[0])

    def differing_conditions(self, other: Side) -> str:
        """Return the differences between the conditions of this side and the other; "" if none."""
        return conditions.differing(self.runs[0].info, other.runs[0].info)

    @property
    def run_ids(self) -> list[str]:
        return [run.run_id for run in self.runs]

    def without_numbers(self) -> Side:
        """Return the same runs without series, so only verdicts are compared."""
        return replace(self, series={})


def load(path: Path) -> Side:
    """Load a run directory or a directory of run directories; raise BadInput if it is neither."""
    if (path / "run.json").is_file() or not path.is_dir():
        return combine([frame.load_complete(path)])
    # A link (`latest`) would count a run twice; a directory without run.json is a killed run.
    directories = sorted(p.parent for p in path.glob("*/run.json") if not p.parent.is_symlink())
    if not directories:
        raise BadInput(f"{path} is neither a run (no run.json) nor a directory of runs")
    return combine([frame.load_complete(directory) for directory in directories])


def combine(runs: Sequence[RunFrames], flavors: Mapping[str, str] = FLAVORS) -> Side:
    """Combine runs into a side; raise BadInput if versions, machines or conditions differ.

    `flavors`: Keras flavors that are compared under another name.
    """
    for noun, describe in (("versions", _versions), ("machines", _machine)):
        kinds = sorted({describe(run) for run in runs})
        if len(kinds) > 1:
            where = runs[0].directory.parent
            raise BadInput(f"{where} holds runs of different {noun}: {'; '.join(kinds)}")
    for run in runs[1:]:
        differences = conditions.differing(runs[0].info, run.info)
        if differences:
            where = runs[0].directory.parent
            raise BadInput(f"{where} holds runs with different conditions: {differences}")
    measurements, verdicts = frame.tidy(runs)
    controls = measurements.loc[measurements["metric"] == pairs.CONTROL]
    numbers = _series(ratios.with_ratios(measurements, verdicts), flavors)
    return Side(tuple(runs), numbers, _tests(verdicts, flavors), controls)


def _versions(run: RunFrames) -> str:
    versions = run.info["versions"]
    return ", ".join(f"{name} {versions.get(name)}" for name in ("tensorflow", "keras", "python"))


def _machine(run: RunFrames) -> str:
    machine = run.info["machine"]
    return ", ".join(str(machine.get(name, "")) for name in ("host", "cpu", "cores"))


def flavors_of(run: RunFrames) -> set[str]:
    """Return the Keras flavors that a run has verdicts of."""
    return {str(keras).partition(" ")[0] for keras in run.verdicts["keras"]} - {"none", ""}


def _series(measurements: pd.DataFrame, flavors: Mapping[str, str]) -> dict[Key, Series]:
    # Interleaved turns of two sides are compared within their run, by `ab`.
    is_compared = (measurements["better"] != "none") & (measurements["metric"] != pairs.TIME)
    values: dict[Key, dict[tuple[str, Any], list[float]]] = {}
    collectives: dict[Key, set[str]] = {}
    names: dict[Key, dict[str, Any]] = {}
    for row in _records(measurements.loc[is_compared]):
        row["keras"] = row["keras"].split(" ")[0]
        same = {**row, "test": same_test(row["test"], flavors)}
        same["keras"] = flavors.get(row["keras"], row["keras"])
        key = tuple(same[name] for name in KEYS)
        values.setdefault(key, {}).setdefault((row["run_id"], row["repeat"]), []).append(
            row["value"]
        )
        collectives.setdefault(key, set()).add(row["collective"])
        names.setdefault(key, {name: row[name] for name in KEYS})
    return {
        key: Series(names[key], tuple(sorted(collectives[key])), _by_run(values[key]))
        for key in sorted(values, key=str)
    }


def _by_run(processes: Mapping[tuple[str, Any], Sequence[float]]) -> dict[str, list[float]]:
    """Reduce the values of each process to their median: only processes are independent."""
    by_run: dict[str, list[float]] = {}
    for (run_id, _), values in processes.items():
        by_run.setdefault(run_id, []).append(median(values))
    return by_run


def _records(rows: pd.DataFrame) -> Iterable[dict[str, Any]]:
    for row in rows.to_dict("records"):
        yield {str(name): None if value is pd.NA else value for name, value in row.items()}


def _tests(verdicts: pd.DataFrame, flavors: Mapping[str, str]) -> dict[str, TestVerdicts]:
    rows_by_test: dict[str, list[dict[str, Any]]] = {}
    for row in _records(verdicts):
        rows_by_test.setdefault(same_test(row["test"], flavors), []).append(row)
    tests = {}
    for key, rows in rows_by_test.items():
        names = tuple(sorted({row["verdict"] for row in rows}))
        reason = next(row["reason"] for row in rows if row["verdict"] == worst(names).name)
        tests[key] = TestVerdicts(rows[0]["test"], names, reason)
    return tests


def same_test(test: str, flavors: Mapping[str, str] = FLAVORS) -> str:
    """Return the test id with the Keras flavor in its parameters under its name of comparison."""
    pattern = r"(?<=[\[-])\w+(?=[\]-])"
    return re.sub(pattern, lambda match: flavors.get(match[0], match[0]), test)
