"""Charts of collectives: busbw by size with the limits of the path, throughput by bandwidth.

All axes are logarithmic, since sizes and speeds span orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from reports.charts.section_charts import DASHES, MARKERS
from reports.charts.svg import COLORS, figure
from reports.core.grouping import backends
from reports.core.text import figure as digits
from reports.core.text import plural
from reports.rundir.frame import RunFrames
from reports.sections import collectives
from reports.sections.collectives import LOOPBACK

BY_SIZE = "busbw by tensor size"
BY_LINK = "busbw over rate-limited links"
BY_BANDWIDTH = "Training of two workers by link bandwidth"
CAPTIONS = {
    BY_SIZE: "Lines connect medians over clusters. Pale bars show the range over clusters. Gray "
    "lines show limits measured in the same run: one plain TCP stream over the same path, memcpy, "
    "and a plain copy between two GPUs, if there are any.",
    BY_LINK: "Thin lines of the same color show the rate limit of the link, which is an upper "
    "bound of busbw.",
    BY_BANDWIDTH: "Thin lines show the largest number of steps per second that the transfer of the "
    "gradients allows. Gray lines show training over links without a rate limit.",
}
LIMIT = "#66707d"
Summary = Sequence[Mapping[str, Any]]
TrainingRates = Mapping[str, Mapping[str, Mapping[str, float]]]


def collective_charts(run: RunFrames) -> Iterator[tuple[str, str]]:
    """Yield (heading, SVG) of each chart that has values."""
    measurements = run.measurements
    summary = collectives.summarize(measurements)
    speeds = collectives.by_link(measurements)
    local = [row for row in summary if row["link"] == LOOPBACK]
    if local:
        yield BY_SIZE, _by_size(local, speeds.get(LOOPBACK, {}))
    if len(local) < len(summary):
        shaped = [row for row in summary if row["link"] != LOOPBACK]
        yield BY_LINK, _by_link(shaped, speeds)
    training = collectives.training_rates(measurements)
    link_speeds = {
        k: v["limit_link_gb_per_s"] for k, v in speeds.items() if "limit_link_gb_per_s" in v
    }
    if training and link_speeds:
        yield BY_BANDWIDTH, _by_bandwidth(training, link_speeds)


def _by_size(summary: Summary, limits: Mapping[str, float]) -> str:
    sizes = sorted({int(row["workers"]) for row in summary})
    cases = sorted({_case(row) for row in summary}, key=str)
    with figure(4.1, len(sizes), "busbw by size") as (axes, svg):
        for ax, workers in zip(axes, sizes, strict=True):
            own = [row for row in summary if row["workers"] == workers]
            for place, case in enumerate(cases):
                points = [row for row in own if _case(row) == case]
                _line(ax, place, points, f"{case[0]}, {case[1]}")
            path_limits = {
                name: limits[key] for key, name in collectives.SPEEDS.items() if key in limits
            }
            for place, name in enumerate(sorted(path_limits, key=lambda name: path_limits[name])):
                _limit(ax, path_limits[name], f"{name} {digits(path_limits[name])}", place)
            _finish(ax, own, plural(workers, "worker"))
            ax.set_ylim(top=ax.get_ylim()[1] * 2)  # room for the name of the highest limit
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, loc="outside lower left", ncols=3)
    return svg[0]


def _case(row: Mapping[str, Any]) -> tuple[str, str]:
    return collectives.operation(row), backends(row["backend"], row["collective"])


def _by_link(summary: Summary, speeds: Mapping[str, Mapping[str, float]]) -> str:
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in summary:
        lines.setdefault(collectives.heading(row), []).append(row)
    with figure(3.8, 1, "busbw over links") as ((ax,), svg):
        for place, (name, points) in enumerate(lines.items()):
            _line(ax, place, points, name)
            link_speed = speeds.get(points[0]["link"], {}).get("limit_link_gb_per_s")
            if link_speed:
                ax.axhline(link_speed, color=COLORS[place % len(COLORS)], linewidth=0.9)
        _finish(ax, summary, "each worker on its own virtual host")
        ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return svg[0]


def _line(ax: Axes, place: int, points: Summary, name: str) -> None:
    across, style = [row["size_bytes"] for row in points], _style(place)
    busbw = [row["busbw"] for row in points]
    ax.plot(across, busbw, **style, markersize=4, linewidth=1.4, label=name)
    lows, highs = ([end(row["reached"]) for row in points] for end in (min, max))
    ax.vlines(across, lows, highs, color=style["color"], linewidth=2.6, alpha=0.35)


def _style(place: int) -> dict[str, Any]:
    """Return color, dash and marker; when colors repeat, dash and marker still differ."""
    other = place + place // len(COLORS)
    return {
        "color": COLORS[place % len(COLORS)],
        "linestyle": DASHES[other % len(DASHES)],
        "marker": MARKERS[other % len(MARKERS)],
    }


def _limit(ax: Axes, height: float, name: str, place: int = 1) -> None:
    """Draw a limit line with its name.

    `place` is the rank of the line from below. It shifts the name, so the names of close lines do
    not overlap.
    """
    ax.axhline(height, color=LIMIT, linewidth=1.1)
    point, above = (0.005 + 0.25 * max(0, place - 1), height), place > 0
    ax.annotate(
        name,
        point,
        (0, 3 if above else -3),
        ax.get_yaxis_transform(),
        "offset points",
        color=LIMIT,
        va="bottom" if above else "top",
    )


def _finish(ax: Axes, summary: Summary, title: str) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    sizes = sorted({row["size_bytes"] for row in summary})
    ax.set_xticks(sizes, [collectives.size(count) for count in sizes], rotation=45)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_ylabel("busbw GB/s")
    ax.set_title(title)


def _by_bandwidth(training: TrainingRates, link_speeds: Mapping[str, float]) -> str:
    with figure(3.8, 1, "throughput by bandwidth") as ((ax,), svg):
        for place, (approach, by_link) in enumerate(training.items()):
            links = sorted(link_speeds.keys() & by_link.keys(), key=lambda link: link_speeds[link])
            across = [8 * link_speeds[link] for link in links]
            steps = [by_link[link]["shaped_steps_per_s"] for link in links]
            # No limit is recorded where the steps exceeded it: the check fails before that.
            most = [by_link[link].get("shaped_steps_limit_per_s", math.nan) for link in links]
            style = _style(place)
            ax.plot(across, most, color=style["color"], linewidth=0.9)
            ax.plot(across, steps, **style, linewidth=1.6, label=approach)
            for link in by_link.keys() - link_speeds.keys():
                _limit(ax, by_link[link]["shaped_steps_per_s"], f"{link} link")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(sorted(8 * speed for speed in link_speeds.values()))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.set_xlabel("link, Gbit/s")
        ax.set_ylabel("steps/s")
        ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return svg[0]
