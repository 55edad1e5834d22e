"""report.md: the run as a short page for the summary of a CI job, with folded details.

The dialect is GitHub's Markdown, and the source is readable as well. All content of a run is
escaped: reasons are untrusted text that contains pipes, stars and angle brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from reports.core.table import Table
from reports.core.text import figure, one_line
from reports.core.verdicts import BY_NAME, VERDICTS
from reports.render import run_facts
from reports.rundir.frame import RunFrames
from reports.sections import conformance
from reports.sections.registry import SECTIONS, Failures

SPECIAL = re.compile(r"[\\`*\[\]|#~!$]|(?<!\w)_|_(?!\w)|^[-+=]|(?<=^\d)[.)]")
SHORT = 40  # most rows of a table in full view; longer tables are folded
EMOJI = {
    "failed": "❌",
    "harness_error": "💥",
    "unexpected_pass": "⏫",
    "known_deviation": "🟡",
    "unsupported": "⚪",
    "passed": "✅",
}


def render(run: RunFrames, failures: Failures | None = None) -> str:
    """Return the whole page as Markdown, ending with a line end.

    A section that cannot be rendered becomes a note, also in `failures`.
    """
    failures = Failures() if failures is None else failures
    return "\n".join(_lines(run, failures)).rstrip("\n") + "\n"


def one_table(table: Table, titled: bool = True) -> str:
    """Render a single table, ending with a line end."""
    return "\n".join(_table(table, titled))


def escape(text: str) -> str:
    """Escape any text as one line of Markdown that shows exactly that text."""
    line = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(lambda match: "\\" + match.group(0), line)


def code(text: str, in_table: bool = False) -> str:
    """Format any text as code; only within a table, a pipe needs a backslash in code too."""
    line = one_line(text)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if line.startswith("`") or line.endswith("`") else ""
    if in_table:
        line = line.replace("|", "\\|")
    return f"{fence}{blank}{line}{blank}{fence}"


def link(url: str) -> str:
    """Return a link for a web address; escape any other text."""
    if re.fullmatch(r"https?://[^\s<>()\"|`]+", url):
        return f"<{url}>"
    return escape(url)


def _lines(run: RunFrames, failures: Failures) -> Iterator[str]:
    def section(title: str, render: Callable[[], Iterator[str]]) -> list[str]:
        return failures.attempt(
            f"section {title}", lambda: [*render()], lambda note: [escape(note), ""]
        )

    facts = dict(run_facts.facts(run))
    sign = EMOJI["passed"] if run_facts.passed(run) else EMOJI["failed"]
    yield f"## {sign} Distributed training on TensorFlow {escape(facts['TensorFlow'])}"
    yield ""
    yield f"**{escape(run_facts.outcome(run))}** in {facts['Duration']}, run {code(run.run_id)}"
    yield ""
    yield from section("Conformance", lambda: _matrix(conformance.matrix(run.verdicts)))
    yield from section("What did not pass", lambda: _findings(conformance.findings(run.verdicts)))
    for row in SECTIONS:
        brief, tables = failures.tables(row, run, brief=True), failures.tables(row, run)
        in_view = [table for table in brief if len(table.rows) <= SHORT]
        for table in in_view:
            yield from _table(table)
        for table in tables:
            if table not in in_view:
                yield from folded(table.title, _table(table, titled=False))
    yield from section("Every verdict", lambda: folded("Every verdict", _verdicts(run)))
    yield from folded("About this run", _facts(facts))


def _matrix(matrix: conformance.Matrix) -> Iterator[str]:
    yield "### Conformance"
    yield ""
    if not matrix.rows:
        yield "No test gave a verdict."
        yield ""
        return
    rows = []
    for name in matrix.rows:
        cells = [matrix.cell(name, prop) for prop in matrix.columns]
        signs = (f"{EMOJI[c.worst.name]} {c.figures()}" if c else "" for c in cells)
        rows.append([escape(name), *signs])
    yield from _grid(["approach", *map(escape, matrix.columns)], rows)
    yield "<sub>"
    yield " · ".join(f"{EMOJI[row.name]} {row.words}" for row in reversed(VERDICTS))
    yield "</sub>"
    yield ""


def _findings(findings: Sequence[conformance.Finding]) -> Iterator[str]:
    """Yield red findings in full view and the others folded."""
    for red, title in ((True, "Needs attention"), (False, "Known deviations and unsupported")):
        group = [finding for finding in findings if finding.verdict.red is red]
        if not group:
            continue
        lines = [line for finding in group for line in _finding(finding)]
        if red:
            yield from (f"### {title}", "", *lines)
        else:
            yield from folded(f"{title} ({sum(len(f.tests) for f in group)})", lines)


def _finding(finding: conformance.Finding) -> Iterator[str]:
    yield f"- {EMOJI[finding.verdict.name]} **{escape(finding.heading())}**  "
    yield f"  {escape(finding.reason)}" + (f"  \n  {link(finding.url)}" if finding.url else "")
    for test in finding.tests:
        yield f"  - {code(test)}"
    if finding.verdict.red:
        for command in finding.reproduce:
            yield f"  - reproduce: {code(command)}"
    yield ""


def _verdicts(run: RunFrames) -> Iterator[str]:
    rows = []
    for row in run.verdicts.to_dict("records"):
        verdict = f"{EMOJI[row['verdict']]} {BY_NAME[row['verdict']].words}"
        reason = escape(row["reason"]) + (f" {link(row['url'])}" if row["url"] else "")
        test = code(row["test"], in_table=True)
        rows.append([verdict, test, reason, figure(row["duration_s"])])
    yield from _grid(["verdict", "test", "reason", "time (s)"], rows, right=(3,))
    yield f"<sub>{escape(conformance.DURATIONS)}</sub>"
    yield ""


def _facts(facts: dict[str, str]) -> Iterator[str]:
    shown = {**facts, "Command": code(facts["Command"], in_table=True)}
    rows = [[escape(k), v if k == "Command" else escape(v)] for k, v in shown.items()]
    yield from _grid(["", ""], rows)


def _table(table: Table, titled: bool = True) -> Iterator[str]:
    if titled:
        yield f"### {table.title}"
        yield ""
    if table.rows:
        heads = [escape(column.name) for column in table.columns]
        rows = [list(map(escape, row.cells)) for row in table.rows]
        # An empty first column would only be read aloud.
        if any(row.group for row in table.rows):
            heads = ["", *heads]
            rows = [[escape(t.group), *own] for t, own in zip(table.rows, rows, strict=True)]
        first = len(heads) - len(table.columns)
        right = [i + first for i, column in enumerate(table.columns) if column.right]
        yield from _grid(heads, rows, right)
    if table.note:
        yield f"<sub>{escape(table.note)}</sub>"
        yield ""


def _grid(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()
) -> Iterator[str]:
    places = set(right)
    yield f"| {' | '.join(heads)} |"
    yield "|" + "|".join("---:" if i in places else "---" for i in range(len(heads))) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Fold lines under a title that unfolds them."""
    yield f"<details><summary>{escape(title)}</summary>"
    yield ""
    yield from lines
    yield "</details>"
    yield ""
