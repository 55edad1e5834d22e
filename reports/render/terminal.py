"""The summary at the end of `pytest suite/`, and the text of `python -m reports show`.

The layout suits 80 columns and CI logs: short lines first, and the outcome last, where a reader
looks when a long run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from reports.core import labels
from reports.core.table import Column, Table
from reports.core.text import one_line
from reports.core.verdicts import VERDICTS
from reports.render import run_facts
from reports.render.terminal_layout import GAP, Cell, Printer, broken_lines, packed, widths
from reports.rundir.frame import RunFrames
from reports.sections import conformance
from reports.sections.registry import SECTIONS, Failures

HEADING_WIDTH = 13  # of an approach's name over its column
REASON_LENGTH = 400
FACTS = ("TensorFlow", "Keras", "Python", "Network", "Data", "Seed", "Duration")


def summary(
    run: RunFrames, console: Console, *, full: bool = False, failures: Failures | None = None
) -> None:
    """Print one run: conformance, failed tests, throughput, counts, path of the report.

    `full` adds every fact of the run, all sections that are not brief, and every reason in full. A
    section that cannot be printed becomes a note, also in `failures`.
    """
    out = Printer(console)
    failures = Failures() if failures is None else failures
    _print_facts(run, out, full)
    failures.attempt(
        "section Conformance",
        lambda: _print_matrix(conformance.matrix(run.verdicts), out),
        out.line,
    )
    failures.attempt(
        "section What did not pass",
        lambda: _print_findings(conformance.findings(run.verdicts), out, full),
        out.line,
    )
    for section in SECTIONS:
        for table in failures.tables(section, run, brief=not full):
            _print_table(table, out)
    out.line()
    style = "bold green" if run_facts.passed(run) else "bold red"
    outcome = f"Run {run.run_id} {run_facts.outcome(run)}".replace(", ", ",\n").split("\n")
    out.lines(packed(outcome, " ", out.width), style)
    page = run.directory / "report.html"
    absent = (
        "" if page.is_file() else f" was not written; run python -m reports html {run.directory}"
    )
    out.whole(f"Report: {page}{absent}")


def one_table(table: Table, console: Console) -> None:
    """Print a single table."""
    _print_table(table, Printer(console))


def _print_facts(run: RunFrames, out: Printer, full: bool) -> None:
    out.line(f"Run {run.run_id}", "bold")
    facts = dict(run_facts.facts(run))
    if not full:
        brief = (f"{label} {facts[label]}" for label in FACTS)
        out.lines(packed(brief, " · ", out.width))
        return
    columns = (Column(""), Column(""))
    sizes = widths(columns, facts.items(), out.width)
    out.grid(columns, [[(label, "dim"), (value, "")] for label, value in facts.items()], sizes)


def _print_matrix(matrix: conformance.Matrix, out: Printer) -> None:
    """Print properties as rows: there are more of them, and names of approaches can be broken."""
    out.line()
    out.line("Conformance", "bold")
    if not matrix.rows:
        out.line("No test gave a verdict.", "dim")
        return
    first = max(len(name) for name in matrix.columns)
    for number, approaches in enumerate(_blocks(matrix.rows, out.width - first - GAP)):
        if number:
            out.line()
        headings = [_heading(name) for name in approaches]
        columns = [Column("")] + [Column(" ".join(lines)) for lines in headings]
        sizes = [first] + [_width(lines) for lines in headings]
        for lines in zip(*_bottom(headings), strict=True):
            out.grid(columns, [[("", ""), *((line, "dim") for line in lines)]], sizes)
        for prop in matrix.columns:
            cells = [_cell(matrix.cell(name, prop), out) for name in approaches]
            out.grid(columns, [[(prop, ""), *cells]], sizes)
    legend = [f"{out.mark(row)} {row.words}" for row in reversed(VERDICTS)]
    out.lines(packed(legend, "   ", out.width), "dim")


def _heading(name: str) -> list[str]:
    trainer, _, keras = name.partition(labels.SEPARATOR)
    return [*broken_lines(trainer, HEADING_WIDTH), *keras.split()]


def _bottom(headings: Sequence[list[str]]) -> list[list[str]]:
    """Pad headings with blank lines on top to the same number of lines."""
    height = max(len(lines) for lines in headings)
    return [[""] * (height - len(lines)) + lines for lines in headings]


def _width(lines: list[str]) -> int:
    return max(len("! 10 of 10"), *map(len, lines))


def _blocks(names: Sequence[str], room: int) -> Iterator[list[str]]:
    """Yield blocks of similar size with as many approaches side by side as fit."""
    widest = max(_width(_heading(name)) for name in names)
    fits = max(1, (room + GAP) // (widest + GAP))
    blocks = -(-len(names) // fits)
    size = -(-len(names) // blocks)
    for start in range(0, len(names), size):
        yield list(names[start : start + size])


def _cell(cell: conformance.Cell | None, out: Printer) -> Cell:
    if cell is None:
        return "·", "dim"
    return f"{out.mark(cell.worst)} {cell.figures()}", cell.worst.color


def _print_findings(findings: Iterable[conformance.Finding], out: Printer, full: bool) -> None:
    for finding in findings:
        out.line()
        out.line(f"{out.mark(finding.verdict)} {finding.heading()}", finding.verdict.color)
        reason = one_line(finding.reason)
        if len(reason) > REASON_LENGTH and not full:
            reason = reason[:REASON_LENGTH] + " … (full text in the report)"
        out.line(reason, indent=2)
        if finding.url:
            out.whole("  " + finding.url, "dim")
        if finding.verdict.red:
            out.lines(("  " + c for c in finding.reproduce or finding.tests), "dim")
        elif len(finding.approaches) == 1:
            out.line("in " + finding.properties(finding.approaches[0]), "dim", indent=2)
        else:
            for name in finding.approaches:
                out.line(f"{name}: {finding.properties(name)}", "dim", indent=2)


def _print_table(table: Table, out: Printer) -> None:
    """Print a table with its groups under their names, all groups in the same columns."""
    out.line()
    out.line(table.title, "bold")
    if table.rows:
        for number, part in enumerate(_parts(table, out)):
            if number:
                out.line()
            _print_columns(part, out)
    out.line(table.note, "dim")


def _print_columns(table: Table, out: Printer) -> None:
    sizes = _sizes(table, out, out.width)
    out.heading(table.columns, sizes)
    for group, rows in table.groups():
        out.line(group, "cyan")
        out.grid(table.columns, [[(cell, "") for cell in row] for row in rows], sizes)


def _sizes(table: Table, out: Printer, room: int) -> list[int]:
    cells = [[out.text(cell) for cell in row.cells] for row in table.rows]
    return widths(table.columns, cells, room)


def _parts(table: Table, out: Printer) -> Iterator[Table]:
    """Yield parts of the table that fit, each with the first columns, which identify its rows."""
    sizes = _sizes(table, out, 0)
    lines = len(table.rows)
    distinct = (len({(row.group, row.cells[:n]) for row in table.rows}) for n in range(len(sizes)))
    first = next((n for n, count in enumerate(distinct) if n and count == lines), 1)
    current: list[int] = []
    for i in range(first, len(sizes)):
        columns = [*range(first), *current, i]
        if current and sum(sizes[j] + GAP for j in columns) - GAP > out.width:
            yield table.with_columns([*range(first), *current])
            current = []
        current.append(i)
    yield table.with_columns([*range(first), *current])
