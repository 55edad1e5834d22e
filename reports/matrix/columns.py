"""The columns of the support matrix: a TensorFlow with one Keras, and its Python if unusual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from packaging.version import InvalidVersion, Version

from reports.core import labels
from reports.core.grouping import grouped
from reports.core.labels import NO_KERAS
from reports.rundir.compact import Published
from reports.rundir.frame import BadInput

# Keras flavor -> its name for readers, in the order of the columns.
FLAVORS: Mapping[str, str] = {
    "keras2": "Keras 2",
    "tf_keras": "tf_keras",
    "keras3": "Keras 3",
    NO_KERAS: "no Keras",
}
DEFAULT_PYTHON = "3.11"  # of the columns that do not name theirs


def flavor_name(flavor: str) -> str:
    """Return the name of a Keras flavor for readers."""
    return FLAVORS.get(flavor, flavor)


@dataclass(frozen=True)
class Column:
    """The versions of one column: `keras` is a label such as "keras3 3.15.1", or "none"."""

    tensorflow: str
    keras: str
    python: str  # without its patch release

    @property
    def flavor(self) -> str:
        return self.keras.split()[0]

    @cached_property
    def minor(self) -> str:
        """Return `2.21`, or `2.22 nightly`."""
        version = _version(self.tensorflow)
        nightly = " nightly" if version.is_devrelease else ""
        return f"{version.major}.{version.minor}{nightly}"

    @cached_property
    def detail(self) -> str:
        """Return the Keras and, if it is not the default, the Python: `Keras 3.15.1`."""
        label = "no Keras" if self.keras == NO_KERAS else self.keras
        for flavor in ("keras2", "keras3"):
            label = label.replace(f"{flavor} ", "Keras ")
        return label if self.python == DEFAULT_PYTHON else f"{label}, Python {self.python}"

    @property
    def release(self) -> str:
        """Return the full version, or `2.22 nightly`."""
        return self.minor if self.minor.endswith("nightly") else self.tensorflow

    @property
    def short(self) -> str:
        """Return `2.21, Keras 3.15.1`."""
        return f"{self.minor}, {self.detail}"

    @property
    def name(self) -> str:
        return f"TensorFlow {self.tensorflow}, {self.detail}"

    @cached_property
    def slug(self) -> str:
        """Return the name of the column's files: `2.21.0-keras3-3.15.1`."""
        versions = labels.of_versions(self.tensorflow, self.keras)
        return versions if self.python == DEFAULT_PYTHON else f"{versions}-python{self.python}"

    @cached_property
    def order(self) -> tuple[Any, ...]:
        """Return the key that sorts columns from the oldest to the newest."""
        flavors = [*FLAVORS, self.flavor]
        keras = self.keras.partition(" ")[2] or "0"
        python = _version(self.python or "0")
        return _version(self.tensorflow), flavors.index(self.flavor), _version(keras), python


def _version(written: str) -> Version:
    try:
        return Version(written)
    except InvalidVersion as error:
        raise BadInput(f"a verdict has {written!r} for a version") from error


def by_column(published: Iterable[Published]) -> dict[Column, Published]:
    """Return the verdicts of each column, the oldest column first.

    A verdict of an approach without Keras is in every column of its TensorFlow and Python. If a
    test has several verdicts in a column, that of the newest run counts.
    """
    runs = list(published)
    infos = {info["run_id"]: info for each in runs for info in each.infos}
    rows = _all(runs)
    found = {}
    for versions, own in grouped(rows, ("tensorflow", "minor")):
        for keras in _keras_labels(own, infos):
            column = Column(versions["tensorflow"], keras, versions["minor"])
            named = own.loc[own["keras"].isin((keras, NO_KERAS))]
            newest = named.drop_duplicates("test", keep="last").sort_values("test")
            of_runs = tuple(infos[name] for name in sorted(set(newest["run_id"])))
            found[column] = Published(of_runs, newest.drop(columns=["start", "minor"]))
    return {column: found[column] for column in sorted(found, key=lambda each: each.order)}


def with_newest_keras(columns: Iterable[Column]) -> list[Column]:
    """Return the last of the columns, which are in order, of each TensorFlow, flavor and Python."""
    return list({(each.tensorflow, each.flavor, each.python): each for each in columns}.values())


def newest(published: Iterable[Published]) -> pd.DataFrame:
    """Return the newest verdict of each test on each TensorFlow, Keras and Python."""
    rows = _all(list(published))
    return rows.drop_duplicates(["test", "tensorflow", "keras", "minor"], keep="last")


def _all(runs: Sequence[Published]) -> pd.DataFrame:
    """Return all verdicts, the oldest first, with `start` of their run and `minor` of Python."""
    rows = pd.concat([each.verdicts for each in runs], ignore_index=True)
    if rows.empty:
        raise BadInput("there is no verdict in these runs")
    starts = {info["run_id"]: info["start"] for each in runs for info in each.infos}
    rows["start"] = rows["run_id"].map(starts)
    rows["keras"] = rows["keras"].replace("", NO_KERAS)
    rows["minor"] = rows["python"].str.split(".").str[:2].str.join(".")
    return rows.sort_values(by=["start", "run_id"], kind="stable")


def _keras_labels(rows: pd.DataFrame, infos: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the Keras of these verdicts; if none has one, those that were installed."""
    examined = sorted(set(rows["keras"]) - {NO_KERAS})
    if examined:
        return examined
    installed: dict[str, None] = {}
    for name in sorted(set(rows["run_id"])):
        flavors = infos[name]["versions"].get("keras")
        for flavor, version in flavors.items() if isinstance(flavors, Mapping) else ():
            # The version of a flavor may be recorded with its name as prefix.
            installed[f"{flavor} {str(version).removeprefix(f'{flavor} ')}"] = None
    return list(installed) or [NO_KERAS]
