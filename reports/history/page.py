"""The history as one page that opens from disk: a picture for each series, and the tables.

Each point is a run, at equal distances. Levels are horizontal lines and change points vertical
lines. Changes of versions are annotated above the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from reports.charts.svg import COLORS, INK, figure, label
from reports.history import tables
from reports.history.series import History, Mark, Series
from reports.render import html

HEIGHT = 1.9  # inches
MARGINS = {"left": 0.08, "right": 0.95, "bottom": 0.13, "top": 0.76}
DIRECTION_COLORS = {"worse": "#a8212b", "better": "#16663f"}
DATES = 8  # most date labels below a picture
NARROWEST = 0.05  # least half range of the scale, as a fraction of the middle
LINES = 3  # lines for marks above a picture, so that neighbors do not overlap
QUIET = "#5a6573"
COMMIT: Mapping[str, Any] = {"color": QUIET, "markersize": 9, "markeredgewidth": 1.4}


def render(history: History) -> str:
    """Return the whole page."""
    changed = [series for series in history.series if series.changes]
    others = [series for series in history.series if not series.changes]
    content = {
        "outcome": history.outcome(),
        "changes": tables.changes_table(history),
        "versions": tables.versions_table(history),
        "series": tables.series_table(history),
        "changed": list(_pictures(changed)),
        "others": list(_pictures(others)),
    }
    return html.page("history.html.j2", content)


def _pictures(all_series: Sequence[Series]) -> Iterator[tuple[str, list[tuple[str, Markup]]]]:
    """Yield (heading, (name, SVG) of each series below it)."""
    for heading, alike in groupby(all_series, key=lambda series: series.heading):
        yield heading, [(series.name, Markup(picture(series))) for series in alike]


def picture(series: Series) -> str:
    """Return one series as SVG."""
    name = f"{series.heading}: {series.name}"
    with figure(HEIGHT, 1, name, MARGINS) as ((ax,), output):
        values = series.values
        ax.set_xlim(-0.5, len(values) - 0.5)
        ax.plot(range(len(values)), values, "o-", color=COLORS[0], markersize=3.5, linewidth=0.6)
        _scale(ax, values)
        _levels(ax, series)
        _versions(ax, series.marks())
        places = labeled_places(len(values))
        ax.set_xticks(places, dates([series.points[place].start for place in places]))
        ax.set_ylabel(label(series.key["unit"] if series.key["unit"] != "1" else ""))
    return output[0]


def dates(starts: Sequence[datetime]) -> list[str]:
    """Return the days, or days with times if several runs share a day."""
    days = [f"{start:%Y-%m-%d}" for start in starts]
    return days if len(set(days)) == len(days) else [f"{start:%m-%d %H:%M}" for start in starts]


def labeled_places(count: int) -> list[int]:
    """Return the indices of the runs with a date label: the last, and others at equal distances."""
    step = -(-count // DATES)
    return list(range((count - 1) % step, count, step))


def _scale(ax: Axes, values: Sequence[float]) -> None:
    """Set limits with a minimum range, so that noise does not look like a change."""
    least, most = min(values), max(values)
    middle = (least + most) / 2
    half = max(0.6 * (most - least), NARROWEST * abs(middle)) or 1
    ax.set_ylim(middle - half, middle + half)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def _levels(ax: Axes, series: Series) -> None:
    """Draw the medians between change points, and each change with its ratio."""
    ends = [0, *(change.place for change in series.changes), len(series.points)]
    levels = [change.before for change in series.changes] + [c.after for c in series.changes[-1:]]
    for level, (start, end) in zip(levels, pairwise(ends), strict=False):
        ax.hlines(level, start - 0.5, end - 0.5, color=INK, linewidth=1.6, alpha=0.75)
    for change in series.changes:
        direction, is_right = series.direction(change.ratio), _beyond(ax, change.place)
        style: dict[str, Any] = {"color": DIRECTION_COLORS[direction]}
        ax.axvline(change.place - 0.5, linewidth=1.6, **style)
        ax.annotate(
            f"{tables.ratio_text(change.ratio)} times, {direction}",
            (change.place - 0.5, 0.5),
            (-5 if is_right else 5, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="center",
            ha="right" if is_right else "left",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            weight="bold",
            **style,
        )


def _versions(ax: Axes, marks: Sequence[Mark]) -> None:
    """Draw a dotted line with a text for changed versions; a changed commit is only a tick."""
    versions = [mark for mark in marks if mark.name != "commit"]
    for line, (place, alike) in enumerate(groupby(versions, key=lambda mark: mark.place)):
        ax.axvline(place - 0.5, color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
        ax.annotate(
            ", ".join(map(str, alike)),
            (place - 0.5, 1),
            (0, 4 + 11 * (line % LINES)),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if _beyond(ax, place) else "left",
            color=QUIET,
            fontsize=9,
        )
    commits = [mark.place - 0.5 for mark in marks if mark.name == "commit"]
    ax.plot(commits, [0.0] * len(commits), "|", transform=ax.get_xaxis_transform(), **COMMIT)


def _beyond(ax: Axes, place: int) -> bool:
    """Return True if a text has more room to its left."""
    return place > 0.7 * ax.get_xlim()[1]
