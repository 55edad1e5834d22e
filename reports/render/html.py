"""report.html: the run as one page that opens from disk, without network or other files.

The templates in templates/ have the layout, and this module provides the content. Jinja escapes all
content, and only web addresses become links, since reasons and addresses are untrusted text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from reports.charts import fault_timelines
from reports.charts.by_section import CHARTS
from reports.charts.fault_timelines import Picture
from reports.core import labels
from reports.core.grouping import whole
from reports.core.table import Table
from reports.core.text import figure
from reports.core.verdicts import BY_NAME, VERDICTS
from reports.render import run_facts
from reports.rundir.frame import RunFrames
from reports.sections import conformance
from reports.sections.registry import SECTIONS, Failures, Section

T = TypeVar("T")
TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(run: RunFrames, failures: Failures | None = None) -> str:
    """Return the whole page.

    A section that cannot be rendered becomes a note, also in `failures`.
    """
    return page("report.html.j2", _content(run, Failures() if failures is None else failures))


def page(template: str, content: Mapping[str, Any]) -> str:
    """Render one of the templates."""
    return _environment().get_template(template).render(content)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.tests["web"] = lambda url: str(url).startswith(("https://", "http://"))
    return environment


def _content(run: RunFrames, failures: Failures) -> Mapping[str, Any]:
    notes: dict[str, str] = {}  # by title, for parts that have a fixed place on the page

    def section(title: str, render: Callable[[], T], otherwise: T) -> T:
        def noted(note: str) -> T:
            notes[title] = note
            return otherwise

        return failures.attempt(f"section {title}", render, noted)

    nothing = conformance.Matrix((), (), {})
    rows = section("Every verdict", lambda: list(_verdicts(run)), [])
    pictures = section("Timelines", lambda: fault_timelines.draw_all(run), [])
    return {
        "run_id": run.run_id,
        "passed": run_facts.passed(run),
        "state": run_facts.state(run),
        "outcome": run_facts.outcome(run),
        "facts": dict(run_facts.facts(run)),
        "examined": run_facts.EXAMINED,
        "leaks": run.info.get("leaks") or (),
        "kinds": VERDICTS,
        "counts": run.counts,
        "matrices": section("Conformance", lambda: conformance.by_folder(run.verdicts), {}),
        "claims": section("Claims", lambda: conformance.claims(run.verdicts), nothing),
        "separator": labels.SEPARATOR,
        "findings": section("What did not pass", lambda: conformance.findings(run.verdicts), []),
        "anchors": defaultdict(lambda: "verdicts", {row["test"]: row["anchor"] for row in rows}),
        "verdicts": rows,
        "durations": conformance.DURATIONS,
        "approaches": sorted({row["approach"] for row in rows}),
        "sections": list(_sections(run, failures)),
        "timelines": _by_approach(pictures),
        "timelines_legend": Markup(fault_timelines.legend()) if pictures else "",
        "notes": notes,
    }


def _sections(
    run: RunFrames, failures: Failures
) -> Iterator[tuple[Section, list[Table], list[tuple[str, Markup, str]]]]:
    for section in SECTIONS:
        tables = failures.tables(section, run)
        if tables:
            yield section, tables, _charts(section, run, failures)


def _charts(section: Section, run: RunFrames, failures: Failures) -> list[tuple[str, Markup, str]]:
    """Return heading, SVG and caption of each chart of the section."""
    charts = CHARTS.get(section.name)
    if charts is None:
        return []
    return failures.attempt(
        f"section {section.title}",
        lambda: [(name, Markup(svg), words) for name, svg, words in charts.with_captions(run)],
        lambda note: [("", Markup('<p class="note">{}</p>').format(note), "")],
    )


def _by_approach(pictures: Iterable[Picture]) -> list[tuple[str, list[Picture]]]:
    return [(name, list(own)) for name, own in groupby(pictures, key=lambda p: p.approach)]


def _breakable(name: str) -> Markup:
    """Allow line breaks in a name after underscores and slashes, where browsers do not break."""
    return Markup(str(escape(name)).replace("_", "_<wbr>").replace("/", "/<wbr>"))


def _verdicts(run: RunFrames) -> Iterator[dict[str, Any]]:
    """Yield each verdict with its evidence, the worst first."""
    order = {row.name: place for place, row in enumerate(VERDICTS)}
    ranked = run.verdicts.assign(rank=run.verdicts["verdict"].map(order))
    ranked = ranked.sort_values(["rank", "test"], kind="stable")
    for number, row in enumerate(ranked.to_dict("records")):
        claims = row["claims"]
        yield {
            **row,
            "anchor": f"verdict-{number}",
            "kind": BY_NAME[row["verdict"]],
            "approach": labels.approach(row["trainer"], row["keras"]),
            "property": labels.property_of(row["test"]),
            "short": labels.short_name(row["test"]),
            "claims": [] if claims is None else list(claims),
            "workers": whole(row["workers"]),
            "seconds": figure(row["duration_s"]),
            "diagnosis": run.diagnosis(row["test"]) if row["verdict"] != "passed" else "",
        }
