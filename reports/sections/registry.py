"""The sections of a report, one row each; terminal, Markdown and page only lay them out.

A new section is a module with a table, and a row here. A section with charts also has a row in
`reports/charts/by_section.py`. Sections know nothing of their charts, because Matplotlib takes a
second to import and only the page draws charts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
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
    not_examined,
    other_metrics,
    published_figures,
    scaling,
    startup,
    step_counts,
    throughput,
    time_use,
    training_curves,
)

MAX_REASON_CHARS = 300
T = TypeVar("T")
Tables = Callable[[RunFrames], Sequence[Table]]


@dataclass(frozen=True)
class Section:
    """One section: `name` is its anchor on the page and the key of its charts.

    `title`: heading on the page. `tables`: the tables of the section. `brief`: the tables for the
    summary of a run and for the unfolded part of Markdown; may be empty. `rows`: the measurements
    that the section shows; the last section shows all other measurements. `always`: show the
    section also without rows, with a note that gives the reason.
    """

    name: str
    title: str
    tables: Tables
    brief: Tables = lambda _: ()
    rows: Callable[[pd.DataFrame], pd.DataFrame] = lambda measurements: measurements.iloc[:0]
    always: bool = True

    def shown(self, run: RunFrames, brief: bool = False) -> list[Table]:
        """Return the tables that have rows; if `always`, also those whose note says why not."""
        tables = self.brief(run) if brief else self.tables(run)
        return [table for table in tables if table.rows or self.always]


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


def metrics_with_section(measurements: pd.DataFrame) -> Collection[str]:
    """Return the metrics that have a section of their own."""
    return {metric for row in SECTIONS for metric in row.rows(measurements)["metric"].unique()}


def one(table: Callable[[RunFrames], Table]) -> Tables:
    return lambda run: (table(run),)


THROUGHPUT, SCALING = one(throughput.table), one(scaling.table)
PAIRED, FAULTS = pairs.of_run, one(fault_matrix.table)
SECTIONS = (
    Section(
        "not-examined",
        "Not examined",
        one(not_examined.table),
        one(not_examined.brief),
        always=False,
    ),
    Section(
        "throughput",
        "Throughput",
        THROUGHPUT,
        THROUGHPUT,
        throughput.rows,
    ),
    Section(
        "scaling",
        "Scaling",
        SCALING,
        SCALING,
        scaling.rows,
        always=False,
    ),
    Section(
        "collectives",
        "Collectives",
        collectives.tables,
        one(collectives.brief),
        collectives.rows,
        always=False,
    ),
    Section("paired", "Paired comparisons", PAIRED, PAIRED, pairs.rows, always=False),
    Section("faults", "Faults", FAULTS, FAULTS, fault_matrix.rows, always=False),
    Section(
        "curves",
        "Training curves",
        one(lambda run: training_curves.table(training_curves.of_run(run))),
    ),
    Section(
        "published", "Published figures", one(published_figures.table), rows=published_figures.rows
    ),
    Section(
        "machine",
        "CPU interference",
        one(interference.table),
        one(interference.warning),
        interference.rows,
        always=False,
    ),
    Section(
        "startup",
        "Startup, checkpoints and memory",
        one(startup.table),
        rows=startup.rows,
    ),
    Section("memory", "Memory per task", one(memory.table), rows=memory.rows, always=False),
    Section(
        "counts", "Numbers of a step", one(step_counts.table), rows=step_counts.rows, always=False
    ),
    Section("time", "Where the time went", one(time_use.table), always=False),
    Section(
        "measured",
        "Other measurements",
        one(lambda run: other_metrics.table(run, metrics_with_section(run.measurements))),
    ),
)
