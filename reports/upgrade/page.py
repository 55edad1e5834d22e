"""The page of an upgrade: the answer, what broke, what became slower, and what is not known."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from rich.console import Console

from reports.ab import pairs
from reports.ab.command import entry, entry_of_number
from reports.compare import gate, output, run_groups
from reports.core import labels
from reports.core.table import Column, Row, Table
from reports.core.text import figure, one_line, plural
from reports.core.verdicts import BY_NAME
from reports.render import markdown, run_facts, terminal
from reports.render.terminal_layout import Printer
from reports.rundir.frame import RunFrames
from reports.stats import counts, ratio_tests
from reports.stats.ratio_tests import Answer
from reports.upgrade.findings import Counted, Findings, heading
from reports.upgrade.measure import LOOK_S, LOOKS, SIDES, compared, expected_s

NOT_STARTED = "not looked at"
# Numbers of a training run that are the same whenever data, seed and arithmetic are, and the
# relative difference that rounding in another order makes.
RESULTS: Mapping[str, float] = {"training_loss": 1e-4}
SPEED = (Column("step ms"), Column("new / base (95 %)"), Column("pairs", right=True))
SPEED_NOTE = (
    "step: base → new, medians. new / base: ratio of step times, above 1 is slower, with its 95 % "
    f"interval. A change counts from {100 * ratio_tests.FLOOR:.0f} % on, if the chance of any "
    "false alarm among all looks at all comparisons is below 5 %. pairs: of processes."
)
TESTS = (Column("test"), Column("base"), Column("new"))
SHOWN = 5  # tests of one reason; more of them say no more
TESTS_NOTE = f"Of more than {SHOWN} tests with the same reason, --format json names all."
UNKNOWN = (Column("what"), Column("why"), Column("what would decide it"))


@dataclass(frozen=True)
class Part:
    """A table of the page; one that is not `open` is folded in Markdown and HTML."""

    table: Table
    open: bool = True


class Page(Findings):
    """The findings as text for each format."""

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what was compared, and for how long: name and text."""
        record = self.measured.record
        for side in SIDES:
            yield side, _description(record.sides[side], self.measured.runs.get(side))
        spent = sum(record.spent_s.values())
        yield "data", _data(self.measured.runs)
        for base, new in self.other_keras.items():
            yield "keras", f"{base} of the base is compared with {new}"
        if self.tests:
            same = sum(item.answer is Answer.NO_CHANGE for item in self.tests)
            yield "tests", f"{len(self.tests):,} on both sides, {same:,} without a change"
        verdicts = figure(sum(record.verdicts.values()))
        yield "time", f"verdicts {verdicts} s, step times {figure(spent)} of {record.budget_s:g} s"

    def parts(self) -> Iterator[Part]:
        """Yield the tables that have something to say, the most important ones first."""
        found = {
            answer: [item for item in self.tests if item.answer is answer] for answer in Answer
        }
        yield from self._verdicts("What stopped passing", found[Answer.REGRESSION])
        yield from self._speed("Slower", Answer.REGRESSION)
        yield from self._numbers("Numbers of a step that changed", self.changed_counts)
        yield from self._speed("Faster", Answer.IMPROVEMENT)
        yield from self._verdicts("What passes now", found[Answer.IMPROVEMENT])
        yield from self._results()
        yield from self._unknown()
        yield from self._verdicts(
            "Verdicts that differ and are no regression", found[Answer.CANNOT_TELL], is_open=False
        )
        unclear = [c for c in self.counts if c.difference.answer is Answer.CANNOT_TELL]
        yield from self._numbers("Numbers of a step that are not judged", unclear, is_open=False)
        yield from self._one_side()
        yield from self._speed("As fast as before", Answer.NO_CHANGE, is_open=False)

    def _verdicts(
        self, title: str, items: Sequence[gate.TestAnswer], is_open: bool = True
    ) -> Iterator[Part]:
        alike: dict[tuple[str, str, str], list[str]] = {}
        for item in sorted(items, key=lambda item: item.reason):
            key = (one_line(item.reason), item.base, item.new)
            alike.setdefault(key, []).append(item.test)
        rows = []
        largest_first = sorted(alike.items(), key=lambda group: -len(group[1]))
        for (reason, base, new), tests in largest_first:
            rows += [Row(reason, (test, base, new)) for test in tests[:SHOWN]]
            if (more := len(tests) - SHOWN) > 0:
                rows += [Row(reason, (f"and {plural(more, 'more test')}", base, new))]
        if rows:
            yield Part(Table(title, TESTS, tuple(rows), TESTS_NOTE), is_open)

    def _speed(self, title: str, answer: Answer, is_open: bool = True) -> Iterator[Part]:
        rows = []
        for test, own in self.speeds.items():
            if own is answer:
                one = self.measured.comparisons[test]
                rows.append(Row(heading(one), self._speed_cells(one)))
        if rows:
            yield Part(Table(title, SPEED, tuple(rows), SPEED_NOTE), is_open)

    @staticmethod
    def _numbers(title: str, items: Sequence[Counted], is_open: bool = True) -> Iterator[Part]:
        rows = [Row(item.name, counts.cells(item.metric, item.difference)) for item in items]
        if rows:
            yield Part(Table(title, counts.COLUMNS, tuple(rows), counts.NOTE), is_open)

    @staticmethod
    def _speed_cells(one: pairs.Series) -> tuple[str, ...]:
        steps = " → ".join(figure(1000 * one.step_s[side]) for side in SIDES)
        return steps, pairs.ratio(one.effect), str(len(one.log_ratios))

    def _results(self) -> Iterator[Part]:
        """Yield numbers of the training itself that differ."""
        if self.comparison is None:
            return
        base, new = (_results(run, self.flavors) for run in self._runs)
        rows = []
        for key in base.keys() & new.keys():
            metric, name = key
            was, now = base[key], new[key]
            if not math.isclose(was, now, rel_tol=RESULTS[metric]):
                rows.append(Row(name, (metric, f"{was:.6f}", f"{now:.6f}")))
        if rows:
            columns = (Column("number"), *(Column(side, right=True) for side in SIDES))
            note = (
                "Of training with the same data and seed. A difference alone is no mistake: "
                "versions may draw other initial weights."
            )
            ordered = tuple(sorted(rows, key=lambda row: row.group))
            yield Part(Table("Numbers that differ", columns, ordered, note))

    def _unknown(self) -> Iterator[Part]:
        """Yield what is undecided, with what would decide it."""
        measured = self.measured
        rows = [
            (
                one.name,
                f"{BY_NAME[one.verdict].words}: {one.reason}",
                f"logs in {measured.record.looks[test][-1]}",
            )
            for test, one in measured.broken.items()
        ]
        for test, answer in self.speeds.items():
            if answer is Answer.CANNOT_TELL:
                one = measured.comparisons[test]
                why = f"{pairs.ratio(one.effect)} after {plural(len(one.log_ratios), 'pair')}"
                rows.append((heading(one), why, self._more(test)))
        for test in self.unseen:
            need_s = (
                LOOK_S * 2 if not measured.record.spent_s else expected_s(measured.record, test)
            )
            rows.append((compared(test), NOT_STARTED, f"--budget {_minutes(need_s)} more"))
        if self.comparison is None:
            missing = [side for side in SIDES if side not in measured.runs]
            rows.append(("verdicts", f"no complete run of {' and '.join(missing)}", "a repetition"))
        if rows:
            lines = tuple(Row("", tuple(map(one_line, cells))) for cells in rows)
            yield Part(Table("Undecided", UNKNOWN, lines))

    def _more(self, test: str) -> str:
        """Return about how much more time an undecided comparison needs for "no change"."""
        one = self.measured.comparisons[test]
        count = len(one.log_ratios)
        if not one.effect.known:
            return f"--budget {_minutes(expected_s(self.measured.record, test))} more"
        half = math.log(one.effect.high / one.effect.low) / 2
        center = abs(math.log(one.effect.ratio))
        room = math.log1p(ratio_tests.FLOOR)
        if center >= room:
            return "a repetition at a quieter time"
        needed = count * (half / (room - center)) ** 2
        looks = math.ceil(max(1.0, (needed - count) / ratio_tests.LEAST_PAIRS))
        if looks > LOOKS:
            return "a repetition at a quieter time"
        return f"--budget {_minutes(looks * expected_s(self.measured.record, test))} more"

    def _one_side(self) -> Iterator[Part]:
        """Yield how many tests only one side has, by verdict."""
        if self.comparison is None:
            return
        base, new = ({**side.tests} for side in (self.comparison.base, self.comparison.new))
        rows = []
        for name, own, other in (("base", base, new), ("new", new, base)):
            alone = [tests for key, tests in own.items() if key not in other]
            counts = Counter(", ".join(BY_NAME[v].words for v in one.verdicts) for one in alone)
            rows += [Row(f"only {name}", (words, f"{n:,}")) for words, n in counts.most_common()]
        if rows:
            columns = (Column("verdict"), Column("tests", right=True))
            note = "A test of one side only is not compared."
            yield Part(Table("Tests of one side", columns, tuple(rows), note), open=False)

    def text(self, console: Console) -> None:
        """Print the page with the answer last, where a reader of a terminal looks first."""
        out = Printer(console)
        for name, text in self.facts():
            out.line(f"{name}: {text}")
        for part in self.parts():
            terminal.one_table(part.table, console)
        out.line()
        out.line(f"{self.headline()}.", "bold red" if self.exit_code() else "bold green")

    def markdown(self) -> str:
        """Return a comment for a pull request, which ends with a line end."""
        lines = [f"## {output.EMOJI[self.exit_code()]} {markdown.escape(self.headline())}", ""]
        lines += [f"- {name}: {markdown.escape(text)}" for name, text in self.facts()]
        lines.append("")
        for part in self.parts():
            table = output.shortened(part.table)
            if part.open:
                lines.append(markdown.one_table(table))
            else:
                title = f"{table.title} ({len(part.table.rows):,})"
                lines += markdown.folded(title, [markdown.one_table(table, titled=False)])
        return "\n".join(lines).rstrip("\n") + "\n"

    def html(self) -> str:
        """Return a page that opens from disk, without other files."""
        from reports.render import html  # imports Matplotlib, which is slow

        content = {
            "headline": self.headline(),
            "passed": self.exit_code() == 0,
            "facts": list(self.facts()),
            "parts": list(self.parts()),
        }
        return html.page("upgrade.html.j2", content)

    def annotations(self) -> str:
        """Return GitHub's workflow commands: an error for each regression, a warning for the rest.

        https://docs.github.com/actions/reference/workflow-commands-for-github-actions
        """
        lines = [
            _annotation("error", "Stopped passing", f"{item.test}: {item.reason}")
            for item in self.tests
            if item.answer is Answer.REGRESSION
        ]
        for test, answer in self.speeds.items():
            one = self.measured.comparisons[test]
            if answer is Answer.REGRESSION:
                text = f"{heading(one)}: {pairs.ratio(one.effect)} times the step time"
                lines.append(_annotation("error", "Slower", text))
        for item in self.changed_counts:
            if item.difference.answer is Answer.REGRESSION:
                words, sides, *_ = counts.cells(item.metric, item.difference)
                lines.append(_annotation("error", "Increased", f"{item.name}: {words} {sides}"))
        for one in self.measured.broken.values():
            lines.append(_annotation("error", "Without a result", f"{one.name}: {one.reason}"))
        if self.undecided():
            text = f"{self.undecided()} within the budget"
            lines.append(_annotation("warning", "Undecided", text))
        if self.measured.record.stopped:
            lines.append(_annotation("warning", "Incomplete", self.measured.record.stopped))
        return "".join(f"{line}\n" for line in lines)

    def json(self) -> str:
        """Return the page for programs; no key is ever removed.

        exit_code, headline, stopped; sides (text of each); tests: test, answer, base, new, reason;
        step_times: those of `ab --format json`; counts: name, metric, base, new, answer, reason;
        not_looked_at: tests.
        """
        content = {
            "exit_code": self.exit_code(),
            "headline": self.headline(),
            "stopped": self.measured.record.stopped,
            "sides": dict(self.measured.record.sides),
            "tests": [{**vars(item), "answer": item.answer.value} for item in self.tests],
            "step_times": [
                *(entry(self.measured.comparisons[test], a) for test, a in self.speeds.items()),
                *(
                    {"name": one.name, "answer": one.verdict, "reason": one.reason}
                    for one in self.measured.broken.values()
                ),
            ],
            "counts": [
                {"name": item.name, "metric": item.metric, **entry_of_number(item.difference)}
                for item in self.counts
            ],
            "not_looked_at": self.unseen,
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _annotation(level: str, title: str, text: str) -> str:
    """Return a workflow command; in its text, % and line ends have escapes."""
    return f"::{level} title={title}::{one_line(text).replace('%', '%25')}"


def _description(text: str, run: RunFrames | None) -> str:
    if run is None:
        return f"{text}, without a complete run"
    versions = run.info["versions"]
    return (
        f"{text}, which is TensorFlow {versions.get('tensorflow')}, {run_facts.keras(run.info)}, "
        f"Python {versions.get('python')}"
    )


def _data(runs: Mapping[str, RunFrames]) -> str:
    for run in runs.values():
        return dict(run_facts.facts(run)).get("Data", "")
    return "none"


def _results(run: RunFrames, flavors: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Return the numbers of RESULTS, by metric and approach with backend."""
    rows: pd.DataFrame = run.measurements.loc[run.measurements["metric"].isin(list(RESULTS))]
    return {
        (
            str(row["metric"]),
            run_groups.same_test(labels.short_name(str(row["test"])), flavors),
        ): float(row["value"])
        for row in rows.to_dict("records")
    }


def _minutes(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds / 60))}m"
