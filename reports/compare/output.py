"""A comparison as text, as Markdown for a pull request, and as JSON for programs.

Readers need the answer first and the changes next. Every "cannot tell" is listed as well, since its
absence would read as "nothing found".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from reports.compare.gate import Comparison, SeriesAnswer, TestAnswer
from reports.compare.run_groups import Side
from reports.core.grouping import backends
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, one_line, plural
from reports.render import markdown, run_facts, terminal
from reports.render.terminal_layout import Printer
from reports.stats.ratio_tests import CHANGED, CONFIDENCE, Answer

SERIES = (
    Column("series"),
    Column("BASE", right=True),
    Column("NEW", right=True),
    Column("ratio", right=True),
    Column("95 % interval", right=True),
    Column("n", right=True),
)
TESTS = (Column("test"), Column("BASE"), Column("NEW"), Column("reason"))
SERIES_NOTE = "ratio: NEW / BASE. n: processes in BASE and in NEW."
TESTS_NOTE = "BASE, NEW: verdict of the test."
MOST = 60  # rows of a table: a comment on a pull request is limited to 65,536 characters
EXAMPLES = 3  # rows shown per reason of "cannot tell"; JSON has all
REASON = 200  # characters of a reason in a table; JSON has all of it
EMOJI = {0: "✅", 1: "❌", 2: "❔", 3: "❔"}  # by exit code


def headline(comparison: Comparison) -> str:
    """Return the counts of the answers in one line: `1 regression, 3 cannot tell, 20 no change`."""
    parts = []
    if comparison.why_no_number:
        parts.append(
            f"no number could be compared: {comparison.why_no_number} "
            "(--verdicts compares only verdicts)"
        )
    for answer in Answer:
        count = comparison.answers.count(answer)
        is_noun = answer in CHANGED
        if count or answer is Answer.REGRESSION:
            parts.append(plural(count, answer.value) if is_noun else f"{count} {answer.value}")
    return ", ".join(parts)


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield the facts that a reader needs to interpret the answers, a sentence or two each."""
    floor, drift = (
        f"{100 * comparison.floor:.3g} %",
        f"{100 * math.expm1(comparison.drift.usual):.2g} %",
    )
    yield (
        f"{len(comparison.series)} series and {plural(len(comparison.tests), 'test')}. A change of "
        f"a series counts if it is above {floor} and significant among "
        f"{plural(comparison.comparisons, 'comparison')}; "
        f"drift between runs {drift} ({comparison.drift.source})."
    )
    if comparison.ratio_drift is not None:
        yield (
            "Ratios to a base do not follow the machine's drift. Their own drift is "
            f"{100 * math.expm1(comparison.ratio_drift):.2g} %; it is larger on a day on which the "
            "base differs from itself (--control)."
        )
    if not comparison.same_machine:
        machines = "; ".join(f"{name} on {side.machine}" for name, side in _sides(comparison))
        yield f"Different machines, so numbers are not comparable: {machines}."
    differences = comparison.base.differing_conditions(comparison.new)
    if differences:
        yield f"Different conditions, so numbers are not comparable: {differences}."
    if not comparison.series:
        yield "No number was compared: BASE has no metric with a better direction."
    if comparison.new_tests or comparison.new_series:
        yield (
            "Only in NEW, without a counterpart in BASE: "
            f"{plural(len(comparison.new_tests), 'test')}, "
            f"{len(comparison.new_series)} series."
        )


def changes(comparison: Comparison) -> list[Table]:
    """Return the tables of regressions and improvements."""
    series = [(item.answer.value, item) for item in comparison.series if item.answer in CHANGED]
    tests = [(item.answer.value, item) for item in comparison.tests if item.answer in CHANGED]
    return _tables("changed", series, tests)


def undecided(comparison: Comparison) -> list[Table]:
    """Group the "cannot tell" answers by reason, with counts and, if reasons differ, examples."""
    series = [
        (item.reason, item) for item in comparison.series if item.answer is Answer.CANNOT_TELL
    ]
    tests = [
        (item.reason, replace(item, reason=""))
        for item in comparison.tests
        if item.answer is Answer.CANNOT_TELL
    ]
    return [_by_reason(table) for table in _tables("cannot tell", series, tests)]


def _by_reason(table: Table) -> Table:
    title = f"{table.title} ({len(table.rows):,})"
    reasons = sorted(table.groups(), key=lambda group: -len(group[1]))
    if len(reasons) == 1 and len(table.rows) > EXAMPLES:
        rows_of_reason = f"{title}: {reasons[0][0]} (--format json lists all)"
        return replace(table, title=rows_of_reason, rows=())
    rows = [
        Row(f"{reason} ({len(rows_of_reason):,})", cells)
        for reason, rows_of_reason in reasons
        for cells in rows_of_reason[:EXAMPLES]
    ]
    hint = f" At most {EXAMPLES} are shown for each reason; --format json lists all."
    note = table.note + (hint if len(rows) < len(table.rows) else "")
    return replace(table, title=title, rows=tuple(rows), note=note)


def as_text(comparison: Comparison, console: Console) -> None:
    """Print the comparison with the answer last, where a reader of a terminal looks first."""
    out = Printer(console)
    for name, side in _sides(comparison):
        out.line(f"{name}: {_description(side)}")
    for table in (*undecided(comparison), *changes(comparison)):
        if table.rows:
            terminal.one_table(table, console)
        else:
            out.line()
            out.line(table.title)
    out.line()
    for note in notes(comparison):
        out.line(note, "dim")
    out.line(headline(comparison), "bold red" if comparison.exit_code() else "bold green")


def as_markdown(comparison: Comparison, exit_code: int) -> str:
    """Return a comment for a pull request: the answer, the changes, and the rest folded."""
    return "\n".join(_markdown(comparison, exit_code)).rstrip("\n") + "\n"


def as_json(comparison: Comparison, exit_code: int) -> str:
    """Return the comparison for programs; unknown values are null, and no key is ever removed.

    exit_code, regression (true or false), counts (of each answer); base, new, confirm: run_ids,
    tensorflow, keras, python, machine (confirm may be null); floor, confidence, drift: relative,
    drift_source; comparisons; series: test, trainer, keras (flavor), backend, workers, replicas,
    fault, variant, metric, unit, better, answer, reason, collective_base, collective_new, base,
    new (geometric means over processes), processes_base, processes_new, ratio, low, high, p;
    tests: test, answer, reason, base, new (verdicts in words); only_in_new: tests, series (with
    the columns of a series' key).
    """
    content = {
        "exit_code": exit_code,
        "regression": Answer.REGRESSION in comparison.answers,
        "counts": {answer.value: comparison.answers.count(answer) for answer in Answer},
        **{
            name: _side(side) for name, side in (("base", comparison.base), ("new", comparison.new))
        },
        "confirm": _side(comparison.confirm) if comparison.confirm else None,
        "floor": comparison.floor,
        "confidence": CONFIDENCE,
        "drift": math.expm1(comparison.drift.usual),
        "drift_source": comparison.drift.source,
        "comparisons": comparison.comparisons,
        "series": [_series(item) for item in comparison.series],
        "tests": [{**vars(item), "answer": item.answer.value} for item in comparison.tests],
        "only_in_new": {
            "tests": list(comparison.new_tests),
            "series": [dict(key) for key in comparison.new_series],
        },
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _sides(comparison: Comparison) -> Iterator[tuple[str, Side]]:
    yield "BASE", comparison.base
    yield "NEW", comparison.new
    if comparison.confirm:
        yield "confirming", comparison.confirm


def _description(side: Side) -> str:
    info = side.runs[0].info
    ids = side.run_ids
    runs = ids[0] if len(ids) == 1 else f"{len(ids)} runs, {ids[0]} to {ids[-1]}"
    return f"TensorFlow {info['versions'].get('tensorflow')}, {run_facts.keras(info)}: run {runs}"


def _tables(
    what: str,
    series: Iterable[tuple[str, SeriesAnswer]],
    tests: Iterable[tuple[str, TestAnswer]],
) -> list[Table]:
    """Return the answers under the given headings; a table without rows is omitted."""
    rows = [Row(heading, _series_cells(item)) for heading, item in series]
    others = [Row(heading, _test_cells(item)) for heading, item in tests]
    tables = (
        Table(f"Series: {what}", SERIES, _by_heading(rows), SERIES_NOTE),
        Table(f"Tests: {what}", TESTS, _by_heading(others), TESTS_NOTE),
    )
    return [table.without_empty_columns() for table in tables if table.rows]


def _by_heading(rows: Iterable[Row]) -> tuple[Row, ...]:
    order = [answer.value for answer in Answer]  # a regression before an improvement

    def place(row: Row) -> tuple[int, str]:
        return (order.index(row.group) if row.group in order else 0), row.group

    return tuple(sorted(rows, key=place))


def _series_cells(item: SeriesAnswer) -> tuple[str, ...]:
    key, effect = item.key, item.effect
    workers = plural(key["workers"], "worker") if key["workers"] else ""
    parts = (
        key["metric"],
        approach(key["trainer"], key["keras"]) if key["trainer"] else "",
        backends(key["backend"], item.collectives[1] or item.collectives[0]),
        workers,
        key["variant"],
        key["fault"],
    )
    return (
        ", ".join(part for part in parts if part),
        figure(item.base),
        figure(item.new),
        f"{effect.ratio:.3f}" if effect else MISSING,
        f"{effect.low:.3f} to {effect.high:.3f}" if effect and effect.known else MISSING,
        " / ".join(map(str, item.processes)),
    )


def _test_cells(item: TestAnswer) -> tuple[str, ...]:
    reason = one_line(item.reason)
    reason = reason[:REASON] + " …" if len(reason) > REASON else reason
    return (item.test, item.base, item.new or MISSING, reason)


def _markdown(comparison: Comparison, exit_code: int) -> Iterator[str]:
    yield f"## {EMOJI[exit_code]} {headline(comparison)}"
    yield ""
    for name, side in _sides(comparison):
        yield f"- {name}: {markdown.escape(_description(side))}"
    yield ""
    for table in changes(comparison):
        yield markdown.one_table(shortened(table))
    for table in undecided(comparison):
        if table.rows:
            rows = [markdown.one_table(shortened(table), titled=False)]
            yield from markdown.folded(table.title, rows)
        else:
            yield from (markdown.escape(table.title), "")
    lines = [markdown.escape(note) for note in notes(comparison)]
    yield from markdown.folded("How the answers were reached", [*_bullets(lines), ""])


def _bullets(lines: Iterable[str]) -> Iterator[str]:
    yield from (f"- {line}" for line in lines)


def shortened(table: Table) -> Table:
    """Return the table with the rows that fit a comment, and a note about the others."""
    omitted = len(table.rows) - MOST
    if omitted <= 0:
        return table
    note = f"{table.note} {omitted} more rows are in --format text and json."
    return replace(table, rows=table.rows[:MOST], note=note.strip())


def _side(side: Side) -> dict[str, Any]:
    versions = side.runs[0].info["versions"]
    version_numbers = {name: versions.get(name) for name in ("tensorflow", "keras", "python")}
    return {"run_ids": side.run_ids, **version_numbers, "machine": side.machine}


def _series(item: SeriesAnswer) -> dict[str, Any]:
    effect = item.effect
    return {
        **item.key,
        "answer": item.answer.value,
        "reason": item.reason,
        **_both("collective", item.collectives),
        "base": item.base,
        "new": item.new,
        **_both("processes", item.processes),
        **{
            name: _number(getattr(effect, name, math.nan)) for name in ("ratio", "low", "high", "p")
        },
    }


def _both(name: str, values: Sequence[Any]) -> Mapping[str, Any]:
    return dict(zip((f"{name}_base", f"{name}_new"), values, strict=True))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
