"""History of many runs: each metric from run to run, its change points, and version changes.

A series is one metric of one set-up with one value per run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from reports.ab import pairs, ratios
from reports.core.grouping import backends, circumstances, grouped, whole
from reports.core.labels import SEPARATOR, approach, short_name
from reports.core.text import plural
from reports.rundir import conditions, frame
from reports.rundir.event_files import EVENTS
from reports.rundir.frame import BadInput, RunFrames
from reports.stats import changepoints as changes
from reports.stats.changepoints import Change

# One side of a paired comparison: its values are only meaningful relative to the other side.
LEFT_OUT = (pairs.TIME,)
KEYS = (
    "metric",
    "unit",
    "trainer",
    "flavor",
    "backend",
    "collective",
    "variant",
    "fault",
    "workers",
    "replicas",
    "test",
)
# Details that are added to a name only if names would be equal without them.
DETAILS = (
    lambda key: whole(key["replicas"]) and plural(int(key["replicas"]), "replica"),
    lambda key: short_name(key["test"]),
)
Versions = Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """A change of a version from the run at `place` on: `TensorFlow 2.20.0 → 2.21.0`."""

    place: int
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


@dataclass(frozen=True)
class LoadedRuns:
    """The runs below a directory, and those that were interrupted or killed (without run.json).

    `damaged`: for each run that cannot be read, the reason.
    """

    runs: tuple[RunFrames, ...]
    interrupted: tuple[Path, ...]
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """One run of a series: the median over its repeats, and its versions."""

    run_id: str
    start: datetime
    value: float
    versions: Versions


@dataclass(frozen=True)
class Series:
    """Points in the order of their runs' starts, at least two."""

    key: Mapping[str, Any]
    name: str  # variant, fault, etc., which distinguish it from others under the same heading
    better: str  # higher or lower
    points: tuple[Point, ...]
    changes: tuple[Change, ...]

    @property
    def heading(self) -> str:
        """Return metric, unit, better direction and approach."""
        unit = f"{self.key['unit']}, " if self.key["unit"] not in ("", "1") else ""
        trainer, flavor = self.key["trainer"], self.key["flavor"]
        whose = SEPARATOR + approach(trainer, flavor) if trainer else ""
        return f"{self.key['metric']} ({unit}{self.better} is better){whose}"

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]

    def direction(self, ratio: float) -> str:
        """Return `better` or `worse` for a level that is `ratio` times the previous one."""
        return "better" if (ratio > 1) == (self.better == "higher") else "worse"

    def marks(self) -> list[Mark]:
        """Return the version changes between the runs of this series."""
        return marks([point.versions for point in self.points])

    def changed_with(self, change: Change) -> str:
        """Return the version changes at the run of this change."""
        changed = [str(mark) for mark in self.marks() if mark.place == change.place]
        return ", ".join(changed) or "same versions"


@dataclass(frozen=True)
class History:
    """All runs in the order of their starts, and their series."""

    runs: tuple[RunFrames, ...]
    interrupted: int
    damaged: int
    series: tuple[Series, ...]
    single: int  # series with one run only, which have no history

    def outcome(self) -> str:
        """Return counts of runs, series and change points in one sentence."""
        first, last = (f"{started(run):%Y-%m-%d}" for run in (self.runs[0], self.runs[-1]))
        when = f"on {first}" if first == last else f"from {first} to {last}"
        parts = [f"{plural(len(self.runs), 'run')} {when}"]
        for state in ("interrupted", "damaged"):
            if count := getattr(self, state):
                parts.append(f"{plural(count, f'{state} run')} left out")
        parts.append(f"{len(self.series)} series")
        if self.single:
            parts.append(f"{self.single} more with one run only")
        counts = Counter(s.direction(one.ratio) for s in self.series for one in s.changes)
        by_direction = ", ".join(
            f"{counts[word]} {word}" for word in ("worse", "better") if counts[word]
        )
        total = plural(counts.total(), "change point")
        return ", ".join(parts) + f"; {total}" + (f": {by_direction}" if by_direction else "")


def load(directory: Path) -> LoadedRuns:
    """Load all runs in or below a directory; raise BadInput if it is not a directory."""
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        raise BadInput(f"{directory} {state}")
    runs, interrupted, damaged = [], [], []
    for path, inner, files in os.walk(directory, onerror=_refuse):
        inner.sort()
        if "run.json" in files:
            try:
                run = frame.load(path)
            except (BadInput, OSError) as error:
                damaged.append(str(error))
            else:
                if run.interrupted:
                    interrupted.append(run.directory)
                else:
                    runs.append(run)
        elif EVENTS in inner:
            interrupted.append(Path(path))
        else:
            continue
        inner.clear()  # directories within a run belong to that run
    return LoadedRuns(tuple(runs), tuple(interrupted), tuple(damaged))


def _refuse(error: OSError) -> None:
    raise error


def build(loads: Iterable[LoadedRuns], metrics: Sequence[str] = ()) -> History:
    """Return the history of these runs, of all metrics or of the named ones.

    Raise BadInput if fewer than two runs are left, two have the same id, a named metric is not in
    the runs, or no metric with a better direction was measured in two of them.
    """
    loaded = list(loads)
    # The same directory may be given twice: directly and by a parent directory.
    by_path = {run.directory.resolve(): run for each in loaded for run in each.runs}
    interrupted = {path.resolve() for each in loaded for path in each.interrupted}
    reasons = {reason for each in loaded for reason in each.damaged}
    runs = sorted(by_path.values(), key=lambda run: (started(run), run.run_id))
    if len(runs) < 2:
        without = f" ({len(interrupted)} more interrupted)" if interrupted else ""
        raise BadInput(f"a history needs at least 2 runs, found {len(runs)}{without}")
    measurements = ratios.with_ratios(*frame.tidy(runs))
    followed = measurements.loc[
        measurements["better"].isin(("higher", "lower")) & ~measurements["metric"].isin(LEFT_OUT)
    ]
    _check_metrics(metrics, followed)
    if metrics:
        followed = followed.loc[followed["metric"].isin(metrics)]
    series = list(_series(followed, runs))
    lasting = [each for each in series if len(each.points) > 1]
    if not lasting:
        raise BadInput("no metric with a better direction was measured in two of these runs")
    named = tuple(_named(lasting))
    return History(tuple(runs), len(interrupted), len(reasons), named, len(series) - len(lasting))


def _check_metrics(metrics: Sequence[str], followed: pd.DataFrame) -> None:
    known = sorted(set(followed["metric"]))
    strange = [name for name in metrics if name not in known]
    if strange:
        raise BadInput(
            f"no metric {strange[0]!r} in these runs; there is {', '.join(known) or 'none'}"
        )


def started(run: RunFrames) -> datetime:
    return frame.timestamp(run.info["start"])


def version_names(info: Mapping[str, Any]) -> Versions:
    """Return the versions and conditions that may explain a change; unrecorded ones are omitted."""
    packages, machine, git = info["versions"], info["machine"], info.get("git") or {}
    flavors = packages.get("keras")
    commit = str(git.get("commit") or "")[:10]
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    named = {
        "TensorFlow": packages.get("tensorflow"),
        **(flavors if isinstance(flavors, Mapping) else {}),
        "Python": packages.get("python"),
        "CPU": machine.get("cpu") and f"{machine['cpu']}{cores}",
        **conditions.of(info),
        "commit": commit and commit + (" with local changes" if git.get("dirty") else ""),
    }
    # The version of a flavor may be recorded with its name as prefix.
    return {name: str(value).removeprefix(f"{name} ") for name, value in named.items() if value}


def marks(listed: Sequence[Versions]) -> list[Mark]:
    """Return every version that differs from the run before, if both runs recorded it."""
    return [
        Mark(place, name, before[name], value)
        for place, (before, after) in enumerate(pairwise(listed), start=1)
        for name, value in after.items()
        if before.get(name, value) != value
    ]


def _series(followed: pd.DataFrame, runs: Sequence[RunFrames]) -> Iterator[Series]:
    """Yield all series, also those with a single point; names are not unique yet."""
    # A series continues when the version of its flavor changes.
    flavor = followed["keras"].str.split().str[0].fillna("")
    listed = list(grouped(followed.assign(flavor=flavor), KEYS))
    enough = sum(rows["run_id"].nunique() >= changes.FEWEST for _, rows in listed)
    for key, rows in listed:
        medians = rows.groupby("run_id")["value"].median().to_dict()
        points = tuple(
            Point(run.run_id, started(run), medians[run.run_id], _own(run, key["flavor"]))
            for run in runs
            if run.run_id in medians
        )
        better = rows["better"].iloc[-1]
        found = tuple(changes.find([point.value for point in points], max(1, enough)))
        yield Series(key, _name(key), better, points, found)


def _own(run: RunFrames, flavor: str) -> Versions:
    """Return the versions that a series of this Keras flavor ran with."""
    others = set(run.info["versions"].get("keras") or ()) - {flavor}
    return {name: value for name, value in version_names(run.info).items() if name not in others}


def _name(key: Mapping[str, Any]) -> str:
    parts = [backends(key["backend"], key["collective"]), circumstances(key)]
    parts.append(whole(key["workers"]) and plural(int(key["workers"]), "worker"))
    return SEPARATOR.join(part for part in parts if part)


def _named(listed: Sequence[Series]) -> Iterator[Series]:
    """Return the series with details appended to names that are not unique."""
    named = list(listed)
    for detail in DETAILS:
        count = Counter((series.heading, series.name) for series in named)
        named = [
            replace(series, name=_with(series.name, detail(series.key)))
            if count[series.heading, series.name] > 1 or not series.name
            else series
            for series in named
        ]
    return iter(named)


def _with(name: str, more: str) -> str:
    return SEPARATOR.join(part for part in (name, more) if part)
