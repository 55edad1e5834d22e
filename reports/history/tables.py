"""Tables of the history: each series with its trend, change points, and version changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from reports.core.table import Column, Row, Table
from reports.core.text import figure
from reports.history.series import History, Series, marks, started, version_names
from reports.render.terminal_layout import BARS
from reports.stats import changepoints

TREND_WIDTH = 20  # characters
FLATTEST = 1.1  # least ratio of maximum to minimum that fills the height of a trend
SERIES_COLUMNS = (
    Column("series"),
    Column("runs", right=True),
    Column("trend"),
    Column("first", right=True),
    Column("last", right=True),
    Column("ratio", right=True),
    Column("changed"),
)
SERIES_NOTE = (
    "Each run has one value, the median over its repeats. ratio: last run / first run. changed: "
    f"change points, which need at least {changepoints.FEWEST} runs."
)
CHANGES_COLUMNS = (
    Column("series"),
    Column("since"),
    Column("from → to", right=True),
    Column("ratio", right=True),
    Column("also changed"),
)
CHANGES_NOTE = (
    "A change point is a run from which on the level of a series is different. from → to: medians "
    "of the levels before and after the change. Detected with PELT: at most 1 in 20 histories of "
    f"pure noise has a change point. Changes below {100 * changepoints.FLOOR:g} % are not "
    "reported. also changed: versions and conditions that changed at that run."
)
VERSIONS_NOTE = "Versions and conditions that differ from the run before."
VERSIONS_COLUMNS = (Column("since"), Column("from → to"))


def tables(history: History) -> list[Table]:
    """Return the tables in terminal order: the last is visible first."""
    return [series_table(history), versions_table(history), changes_table(history)]


def series_table(history: History) -> Table:
    """Return a line for each series."""
    lines = []
    for series in history.series:
        first, last = series.values[0], series.values[-1]
        cells = (
            series.name,
            str(len(series.points)),
            trend(series.values),
            figure(first),
            figure(last),
            ratio_text(last / first if first else math.nan),
            ", ".join(
                f"{_date(series, one.place)}: {ratio_text(one.ratio)}" for one in series.changes
            ),
        )
        lines.append(Row(series.heading, cells))
    return Table("Series", SERIES_COLUMNS, tuple(lines), SERIES_NOTE)


def changes_table(history: History) -> Table:
    """Return a line for each change point."""
    lines = [
        Row(series.heading, (series.name, *cells))
        for series in history.series
        for cells in _changes(series)
    ]
    note = CHANGES_NOTE if lines else f"No series changed its level. {CHANGES_NOTE}"
    return Table("Change points", CHANGES_COLUMNS, tuple(lines), note)


def _changes(series: Series) -> Iterator[tuple[str, ...]]:
    for change in series.changes:
        yield (
            f"{_date(series, change.place)} {series.points[change.place].run_id}",
            f"{figure(change.before)} → {figure(change.after)}",
            f"{ratio_text(change.ratio)} {series.direction(change.ratio)}",
            series.changed_with(change),
        )


def versions_table(history: History) -> Table:
    """Return a line for each version that differs from the run before."""
    changes = marks([version_names(run.info) for run in history.runs])
    lines = []
    for mark in sorted(changes, key=lambda mark: mark.name):  # stable
        run = history.runs[mark.place]
        cells = (f"{started(run):%Y-%m-%d} {run.run_id}", f"{mark.before} → {mark.after}")
        lines.append(Row(mark.name, cells))
    note = VERSIONS_NOTE if lines else "All runs have the same versions."
    return Table("Versions", VERSIONS_COLUMNS, tuple(lines), note)


def _date(series: Series, place: int) -> str:
    return f"{series.points[place].start:%Y-%m-%d}"


def ratio_text(ratio: float) -> str:
    """Return `1.104`: three decimals show small changes."""
    return f"{ratio:.3f}" if 0.1 <= ratio < 10 else figure(ratio)


def trend(values: Sequence[float]) -> str:
    """Return a bar per value, or per median of neighbors if there are many; noise looks flat."""
    size = min(len(values), TREND_WIDTH)
    ends = [len(values) * i // size for i in range(size + 1)]
    shown = [median(values[a:b]) for a, b in pairwise(ends)]
    least, most = min(shown), max(shown)
    middle = (least + most) / 2
    half = max((most - least) / 2, abs(middle) * (FLATTEST - 1) / 2)
    if half == 0:
        return BARS[len(BARS) // 2] * size
    shares = ((value - middle + half) / (2 * half) for value in shown)
    return "".join(BARS[min(int(share * len(BARS)), len(BARS) - 1)] for share in shares)
