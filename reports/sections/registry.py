"""The sections of a report, one row each; terminal, Markdown and page only lay them out.

A new section is a module with a table, and a row here. Charts are given by name and imported on
use: Matplotlib takes a second to import, and only the page draws charts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeVar

import pandas as pd

from reports.ab import pairs
from reports.core.table import Table
from reports.core.text import one_line
from reports.rundir.frame import RunFrames
from reports.sections import (
    collectives,
    fault_matrix,
    interference,
    memory,
    other_metrics,
    published_figures,
    scaling,
    startup,
    throughput,
    training_curves,
)

MAX_REASON_CHARS = 300
T = TypeVar("T")
Tables = Callable[[RunFrames], Sequence[Table]]


@dataclass(frozen=True)
class Section:
    """One section: `name` is its anchor on the page, `title` its heading there.

    `tables`: the tables of the section. `brief`: the tables for the summary of a run and for the
    unfolded part of Markdown; may be empty. `rows`: the measurements that the section shows; the
    last section shows all other measurements. `charts`: a function in this package that takes a run
    and returns heading and SVG of each chart. `caption`: describes all charts. `captions`: captions
    by chart heading. `always`: show the section also without rows, with a note that gives the
    reason.
    """

    name: str
    title: str
    tables: Tables
    brief: Tables = lambda _: ()
    rows: Callable[[pd.DataFrame], pd.DataFrame] = lambda measurements: measurements.iloc[:0]
    charts: str = ""
    caption: str = ""
    captions: Mapping[str, str] = field(default_factory=dict)
    always: bool = True

    def shown(self, run: RunFrames, brief: bool = False) -> list[Table]:
        """Return the tables that have rows; if `always`, also those whose note says why not."""
        tables = self.brief(run) if brief else self.tables(run)
        return [table for table in tables if table.rows or self.always]

    def drawn(self, run: RunFrames) -> Iterable[tuple[str, str]]:
        """Return heading ("" if there is only one) and SVG of each chart."""
        if not self.charts:
            return []
        module, _, function = self.charts.rpartition(".")
        return getattr(import_module(f"reports.{module}"), function)(run)


class Failures(list[str]):
    """Parts of a run's pages that could not be rendered, one line each.

    Exceptions are caught only here, so a defect in one section leaves the others intact.
    """

    def attempt(self, part: str, render: Callable[[], T], otherwise: Callable[[str], T]) -> T:
        """Return the result of `render`, or, if it raises, `otherwise` of a note with the error."""
        try:
            return render()
        except Exception as error:  # noqa: BLE001 - whatever a section raises
            reason = one_line(f"{type(error).__name__}: {error}")[:MAX_REASON_CHARS]
            note = f"{part} could not be rendered: {reason}"
            if note not in self:  # a section is on several pages
                self.append(note)
            return otherwise(note)

    def tables(self, section: Section, run: RunFrames, brief: bool = False) -> list[Table]:
        """Return the section's tables, or one table with a note instead of rows."""
        return self.attempt(
            f"section {section.title}",
            lambda: section.shown(run, brief),
            lambda note: [Table(section.title, (), note=note)],
        )


def elsewhere(measurements: pd.DataFrame) -> Collection[str]:
    """Return the metrics that have a section of their own."""
    return {metric for row in SECTIONS for metric in row.rows(measurements)["metric"].unique()}


def one(table: Callable[[RunFrames], Table]) -> Tables:
    return lambda run: (table(run),)


THROUGHPUT, SCALING = one(throughput.table), one(scaling.table)
PAIRED, FAULTS = one(pairs.of_run), one(fault_matrix.table)
SECTIONS = (
    Section(
        "throughput",
        "Throughput",
        THROUGHPUT,
        THROUGHPUT,
        throughput.rows,
        "charts.section_charts.throughput_chart",
        "Bar: mean over separate processes. Whisker: 95 % interval. Dots: the processes.",
    ),
    Section(
        "scaling",
        "Scaling",
        SCALING,
        SCALING,
        scaling.rows,
        "charts.section_charts.scaling_chart",
        "Speed-up over one process without a strategy. Upright stroke: 95 % interval over passes. "
        "Grey: as many times as there are workers.",
        always=False,
    ),
    Section(
        "collectives",
        "Collectives",
        collectives.tables,
        one(collectives.brief),
        collectives.rows,
        "charts.collective_charts.drawn",
        captions=collectives.CAPTIONS,
        always=False,
    ),
    Section("paired", "In turns", PAIRED, PAIRED, pairs.rows, always=False),
    Section("faults", "Faults", FAULTS, FAULTS, fault_matrix.rows, always=False),
    Section(
        "curves",
        "Training curves",
        one(lambda run: training_curves.table(training_curves.of(run))),
        charts="charts.section_charts.curves_charts",
    ),
    Section(
        "published", "Published figures", one(published_figures.table), rows=published_figures.rows
    ),
    Section(
        "machine",
        "Machine while timing",
        one(interference.table),
        one(interference.warning),
        interference.rows,
        always=False,
    ),
    Section(
        "startup",
        "Start-up, saving and memory",
        one(startup.table),
        rows=startup.rows,
        charts="charts.section_charts.startup_chart",
        caption="Dots: single values. Upright stroke: median. Line: its 95 % interval.",
    ),
    Section("memory", "Memory of each task", one(memory.table), rows=memory.rows, always=False),
    Section(
        "measured",
        "Other measurements",
        one(lambda run: other_metrics.table(run, elsewhere(run.measurements))),
    ),
)
