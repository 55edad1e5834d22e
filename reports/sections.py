"""What a report shows of a run's numbers, a row each; terminal, Markdown and page lay it out.

A new report is a module with a `table` and a row here. Charts are named, not imported: Matplotlib
takes a second to import, and only the page draws.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module

import pandas as pd

from reports import curves, faults, measured, paired, published, scaling, startup, throughput
from reports.frame import RunFrames
from reports.table import Table

# A picture: its heading, "" where there is only one, and the SVG.
Charts = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """One report: `name` is its anchor on the page, `title` its heading there.

    `rows`: the measurements that it shows; the last section has what is in none. `charts`: a
    function of charts.py that takes a run, and `caption` what it draws. `always`: there also
    without rows, to say why; `brief`: in the summary of a run, and in full view in Markdown.
    """

    name: str
    title: str
    table: Callable[[RunFrames], Table]
    rows: Callable[[pd.DataFrame], pd.DataFrame] = lambda measurements: measurements.iloc[:0]
    charts: str = ""
    caption: str = ""
    always: bool = True
    brief: bool = False

    def drawn(self, run: RunFrames) -> Charts:
        """Its charts; none where there is nothing to draw."""
        if not self.charts:
            return []
        return getattr(import_module("reports.charts"), self.charts)(run)


def shown(measurements: pd.DataFrame) -> Collection[str]:
    """Metrics that have a section of their own."""
    return {metric for row in SECTIONS for metric in row.rows(measurements)["metric"].unique()}


SECTIONS = (
    Section(
        "throughput",
        "Throughput",
        throughput.table,
        throughput.rows,
        "throughput_chart",
        "Bar: mean over separate processes. Whisker: 95 % interval. Dots: the processes.",
        brief=True,
    ),
    Section(
        "scaling",
        "Scaling",
        scaling.table,
        scaling.rows,
        "scaling_chart",
        "Speed-up over one process without a strategy. Grey: as many times as there are workers.",
        always=False,
        brief=True,
    ),
    Section(
        "paired",
        "In turns",
        paired.of_run,
        paired.rows,
        always=False,
        brief=True,
    ),
    Section("faults", "Faults", faults.table, faults.rows, always=False, brief=True),
    Section(
        "curves",
        "Training curves",
        lambda run: curves.table(curves.of(run)),
        charts="curves_charts",
    ),
    Section("published", "Published figures", published.table, published.rows),
    Section(
        "startup",
        "Start-up and memory",
        startup.table,
        startup.rows,
        "startup_chart",
        "Dots: single values. Upright stroke: median. Line: its 95 % interval.",
    ),
    Section(
        "measured",
        "Other measurements",
        lambda run: measured.table(run, shown(run.measurements)),
    ),
)
