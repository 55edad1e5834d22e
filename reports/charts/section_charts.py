"""Charts as inline SVG, one function per section. Intervals are those of the section's tables.

Lines and points differ in dash and marker as well as in color.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from reports.charts.svg import COLORS, INK, figure, label
from reports.core.grouping import circumstances, grouped, whole
from reports.core.text import plural
from reports.rundir.frame import RunFrames
from reports.sections import scaling, startup, throughput
from reports.sections import training_curves as curves
from reports.sections.training_curves import Curve
from reports.stats.intervals import Estimate

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 2, 2)), (0, (1, 1)), (0, (8, 3)))


def throughput_chart(run: RunFrames) -> list[tuple[str, str]]:
    """Draw steps/s and examples/s of every case, with the interval and each process."""
    cases = throughput.summarize(run.measurements).to_dict("records")
    if not cases:
        return []
    labels = [label(*_case_lines(case)) for case in cases]
    with figure(0.9 + 0.62 * len(cases), 2, "Throughput by case") as (axes, output):
        for ax, rate, title in zip(
            axes, throughput.RATES.values(), ("steps/s", "examples/s"), strict=True
        ):
            for place, case in enumerate(cases):
                _bar(ax, place, case[rate], case["values_per_s"][rate])
            _finish_bars(ax, labels if ax is axes[0] else [""] * len(labels), title)
    return [("", output[0])]


def _case_lines(case: dict[str, Any]) -> tuple[str, str]:
    requested, actual = case["backend"], case["collective"]
    backend = f"requested {requested}, actual {actual}, " if requested != "none" else ""
    extra = circumstances(case)
    workers = whole(case["workers"])
    size = plural(int(workers), "worker") if workers else "workers not recorded"
    trainer = case["trainer"] + (f", {extra}" if extra else "")
    keras = "" if case["keras"] in ("", "none") else case["keras"] + ", "
    return trainer, f"{keras}{backend}{size}"


def _bar(ax: Axes, place: int, estimate: Any, values: Sequence[float]) -> None:
    if estimate is None:
        ax.text(0, place, " not measured", va="center", color="#66707d")
        return
    ax.barh(place, estimate.center, 0.62, color="#b9cdea", edgecolor=COLORS[0], linewidth=0.8)
    ax.plot(values, [place] * len(values), "o", markersize=3, color="#2457a6", alpha=0.55)
    if estimate.known:
        error = [[estimate.center - estimate.low], [estimate.high - estimate.center]]
        ax.errorbar(estimate.center, place, xerr=error, color=INK, capsize=3.5, linewidth=1.3)
    end = max(estimate.high if estimate.known else 0, estimate.center, *values)
    text = estimate.plus_minus() + ("" if estimate.known else f" (n={estimate.count})")
    ax.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center")


def _finish_bars(ax: Axes, labels: Sequence[str], title: str) -> None:
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlim(0, ax.get_xlim()[1] * 1.3)  # room for the figures at the bars' ends
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    ax.set_title(title)


def scaling_chart(run: RunFrames) -> list[tuple[str, str]]:
    """Draw speedup by workers: one chart per approach, one line per model."""
    approaches: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for row in scaling.summarize(run.measurements):
        if row["speed_up"] is not None:
            name = f"{row['trainer']}, requested {row['backend']}, actual {row['collective']}"
            curve = f"{row['model']}, {row['scaling']}"
            point = (float(row["workers"]), row["speed_up"])
            approaches.setdefault(name, {}).setdefault(curve, []).append(point)
    return [(name, _speed_ups(name, curves)) for name, curves in approaches.items()]


def _speed_ups(name: str, curves: dict[str, list[tuple[float, Estimate]]]) -> str:
    with figure(3.4, 2, f"Scaling of {name}") as (axes, output):
        for ax, kind in zip(axes, ("weak", "strong"), strict=True):
            own = {curve: points for curve, points in curves.items() if curve.endswith(kind)}
            most = max((x for points in own.values() for x, _ in points), default=1.0)
            ax.plot([1, most], [1, most], color="#9aa3ae", linewidth=1, label="ideal")
            for place, (curve, points) in enumerate(own.items()):
                line = _line(ax, place, [(x, estimate.center) for x, estimate in points])
                line.set_label(curve.split(",")[0])
                for x, estimate in points:
                    if estimate.known:
                        ax.vlines(
                            x, estimate.low, estimate.high, color=line.get_color(), linewidth=1
                        )
            # The limits follow the centers: an interval of two passes can be many times as wide.
            highest = max(
                (estimate.center for points in own.values() for _, estimate in points), default=1
            )
            ax.set_ylim(0, 1.25 * max(highest, 1.0))
            ax.set_title(f"{kind}: speedup")
            ax.set_xlabel("workers")
            ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            ax.legend()
    return output[0]


def startup_chart(run: RunFrames) -> list[tuple[str, str]]:
    """Draw samples, median and interval of each metric that has several variants."""
    numbers = startup.rows(run.measurements)
    metrics = [
        (str(metric), own.to_dict("records"))
        for metric, own in startup.summarize(numbers).groupby("metric")
        if own["variant"].nunique() > 1
    ]
    return [("", _startup(metric, numbers, own)) for metric, own in metrics]


def _startup(metric: str, numbers: pd.DataFrame, estimates: Sequence[dict[Any, Any]]) -> str:
    of_metric = numbers.loc[numbers["metric"] == metric]
    samples = list(grouped(of_metric, startup.KEYS))
    height = 0.8 + 0.42 * len(samples)
    with figure(height, 1, f"Startup by variant: {metric}") as ((ax,), output):
        labels = []
        for place, row in enumerate(estimates):
            own = [rows for key, rows in samples if _same(key, row)]
            values = list(own[0]["value"]) if own else []
            estimate = row["estimate"]
            ax.plot(values, [place] * len(values), "o", markersize=4, color="#2457a6", alpha=0.45)
            ax.plot(estimate.center, place, "|", markersize=17, markeredgewidth=2.2, color=INK)
            if estimate.known:
                ax.hlines(place, estimate.low, estimate.high, color=INK, linewidth=1.4)
            text = f"{estimate.center:.3g} {'times' if row['unit'] == '1' else row['unit']}"
            if estimate.count > 1:
                text = f"median {text} of {estimate.count}"
            end = max([*values, *([estimate.high] if estimate.known else [])])
            ax.annotate(text, (end, place), (9, 0), textcoords="offset points", va="center")
            size = whole(row["workers"])
            labels.append(label(circumstances(row), size and plural(int(size), "worker")))
        _finish_bars(ax, labels, metric)
    return output[0]


def _same(key: Any, row: Any) -> bool:
    return all(str(key[name]) == str(row[name]) for name in startup.KEYS)


def curves_charts(run: RunFrames) -> list[tuple[str, str]]:
    """Draw loss per step, and loss and accuracy per epoch, of each trainer."""
    trainers: dict[str, list[Curve]] = {}
    for curve in curves.of_run(run):
        trainers.setdefault(curve.trainer, []).append(curve)
    return [(trainer, _curves(trainer, own)) for trainer, own in trainers.items()]


def _curves(trainer: str, curves: Sequence[Curve]) -> str:
    panels: list[tuple[str, str, list]] = [
        ("loss", "global step", [curve.steps for curve in curves]),
        ("loss per epoch", "epoch", [_metric(curve, "loss") for curve in curves]),
        ("accuracy per epoch", "epoch", [_metric(curve, "accuracy") for curve in curves]),
    ]
    panels = [panel for panel in panels if any(panel[2])]
    with figure(3.1, max(1, len(panels)), f"Training of {trainer}") as (axes, output):
        for ax, (title, across, lines) in zip(axes, panels, strict=False):
            for place, points in enumerate(lines):
                _line(ax, place, points, markers=across == "epoch")
            ax.set_title(title)
            ax.set_xlabel(across)
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
            if len({x for points in lines for x, _ in points}) == 1:
                ax.margins(x=1)  # prevents fractional ticks around a single epoch
        labels = [label(curve.label) for curve in curves]
        handles = [_line(axes[0], place, [(0, math.nan)]) for place in range(len(curves))]
        axes[0].figure.legend(handles, labels, loc="outside lower left", ncols=3)
    return output[0]


def _metric(curve: Curve, name: str) -> list[tuple[int, float]]:
    return [(epoch, metrics[name]) for epoch, metrics in curve.epochs if name in metrics]


def _line(
    ax: Axes, place: int, points: Sequence[tuple[float, float]], markers: bool = True
) -> Line2D:
    """Draw one curve; later curves are thinner and dashed, so coinciding curves stay visible."""
    which = place % len(COLORS)
    (line,) = ax.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=COLORS[which],
        linestyle=DASHES[which],
        linewidth=max(0.9, 2.2 - 0.4 * place),
        marker=MARKERS[which] if markers or len(points) == 1 else "",
        markersize=max(4, 7 - place),
    )
    return line
