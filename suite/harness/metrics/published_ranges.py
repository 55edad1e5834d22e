"""The documents' printed figures, and the range of the suite's own runs.

A figure is what a document printed of one run. Neither initial weights nor the order of the data
are known, so a figure is one draw from a distribution. Own draws, from seeds, are in
published_seeds.csv, one line for each seed and quantity.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev

from scipy.special import stdtrit

from suite.harness.core.paths import ROOT
from suite.harness.tables.toml_schema import read_toml

HERE = ROOT / "suite" / "conformance"
FIGURES, SEEDS = HERE / "published_figures.toml", HERE / "published_seeds.csv"
# For runs equivalent to the suite's own, one figure in this many falls outside by chance.
ONE_IN = 100


@dataclass(frozen=True)
class Figure:
    """The figures that a document prints of one run of a setup."""

    name: str
    setup: str
    url: str
    values: Mapping[str, float]  # quantity -> printed value


@dataclass(frozen=True)
class Draw:
    """One quantity of one of the suite's own runs; a line of published_seeds.csv."""

    setup: str
    keras: str
    tensorflow: str
    seed: int
    quantity: str
    value: float


@dataclass(frozen=True)
class Range:
    """The allowed range of a quantity, including both ends."""

    quantity: str
    low: float
    high: float


def figures(path: Path = FIGURES) -> tuple[Figure, ...]:
    return tuple(Figure(**row) for row in read_toml(path)["figure"])


def of_setup(name: str) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures() if figure.setup == name)


def draws(path: Path = SEEDS) -> tuple[Draw, ...]:
    kinds = {f.name: {"int": int, "float": float}.get(str(f.type), str) for f in fields(Draw)}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(Draw(**{k: kinds[k](v) for k, v in row.items()}) for row in rows)


def observed_ranges(setup: str, own: Iterable[Draw]) -> Iterator[Range]:
    """Yield for each quantity the range from the minimum to the maximum of the own runs."""
    for quantity, values in _samples(setup, own):
        yield Range(quantity, min(values), max(values))


def prediction_intervals(setup: str, own: Iterable[Draw]) -> Iterator[Range]:
    """Yield for each quantity the two-sided prediction interval of one more own run.

    It uses Student's t, because the spread is estimated from these few runs as well. Raise
    ValueError for fewer than three seeds.
    """
    for quantity, values in _samples(setup, own):
        if len(values) < 3:
            raise ValueError(f"{setup}: {len(values)} seeds are too few for a range")
        mean = fmean(values)
        wide = float(stdtrit(len(values) - 1, 1 - 0.5 / ONE_IN)) * stdev(values)
        wide *= math.sqrt(1 + 1 / len(values))
        yield Range(quantity, mean - wide, mean + wide)


def _samples(setup: str, own: Iterable[Draw]) -> Iterator[tuple[str, list[float]]]:
    found: dict[str, list[float]] = {}
    for draw in own:
        if draw.setup == setup:
            found.setdefault(draw.quantity, []).append(draw.value)
    yield from found.items()


def outside(values: Mapping[str, float], allowed: Iterable[Range]) -> list[str]:
    """Return a sentence for each value outside its range; a range may have no value."""
    return [
        f"{r.quantity}: {values[r.quantity]:.4f} is not in {r.low:.4f} to {r.high:.4f}"
        for r in allowed
        if r.quantity in values and not r.low <= values[r.quantity] <= r.high
    ]
