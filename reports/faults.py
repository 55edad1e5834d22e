"""The fault table: what came of it when which task was hurt, how and when, for each approach."""

from __future__ import annotations

from reports.conformance import approach
from reports.frame import RunFrames
from reports.table import Column, Row, Table
from reports.text import MISSING, figure
from reports.verdicts import VERDICTS

METRICS = ("fault_noticed_s", "fault_recovered_s", "fault_steps_lost")
COLUMNS = (
    Column("fault"),
    Column("victim, moment"),
    Column("verdict"),
    Column("noticed, s", right=True),
    Column("well again, s", right=True),
    Column("steps lost", right=True),
)
NOTE = (
    "noticed: from the fault until the last of the others had failed; well again: from the fault "
    "to the first step of the task that was hurt, in its next life, the harness's waiting and its "
    "restart included; steps lost: told before the fault and made again."
)
WORDS = {row.name: row.words for row in VERDICTS}


def table(run: RunFrames) -> Table:
    """One line for each row of the fault table and approach, in the order of the tests."""
    judged = run.verdicts.loc[run.verdicts["fault"].fillna("").ne("")]
    numbers = run.measurements.loc[run.measurements["metric"].isin(METRICS)]
    by_test = {
        (test, metric): value
        for test, metric, value in zip(
            numbers["test"], numbers["metric"], numbers["value"], strict=True
        )
    }
    lines = []
    for row in judged.to_dict("records"):
        *seconds, steps = (by_test.get((row["test"], metric)) for metric in METRICS)
        told = (*map(figure, seconds), MISSING if steps is None else f"{steps:.0f}")
        cells = (row["fault"], row["variant"], WORDS[row["verdict"]], *told)
        lines.append(Row(approach(row["trainer"], row["keras"]), cells))
    lines.sort(key=lambda line: line.group)  # stable
    return Table("Faults", COLUMNS, tuple(lines), NOTE if lines else "No task was hurt by rows.")
