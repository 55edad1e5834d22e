"""Generate the parts of the pages that come from tables of the project and from recorded runs.

A line `<!-- generated: NAME [ARGUMENT] -->` in a page is replaced by the Markdown of the function
of PARTS with that name. TensorFlow is not needed.
"""

from __future__ import annotations

import ast
import contextlib
import html as html_module
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from reference_trainers import TRAINERS, Trainer
from reference_trainers.events import SCHEMA
from reports import __main__ as reports_command
from reports.charts import fault_timelines, section_charts
from reports.core.verdicts import PASSED, VERDICTS
from reports.render import html
from reports.rundir import frame
from reports.sections import fault_matrix
from suite.campaigns import parquet_file
from suite.harness.core.settings import OPTIONS
from suite.harness.faults import matrix, promises
from suite.harness.faults.injection_points import INJECTION_POINTS
from suite.harness.metrics import published_ranges as published
from suite.harness.tables.expectations import ANY, KNOWN_DEVIATION, UNSUPPORTED, Expectations, Row

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EVIDENCE, RECORDED = DOCS / "evidence", DOCS / "recorded"
MARKER = re.compile(r"^<!-- generated: ([a-z-]+)(?: ([a-z0-9-]+))? -->$", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)(?=\))")
OUTPUT_COLUMNS = 84  # of the terminal that a printed output is made for

# Heading of the table of what works -> TensorFlow and Keras, as in the rows of expectations.toml.
EXAMINED: Mapping[str, tuple[str, str]] = {
    "Keras 3": ("2.21.0", "keras3 3.15.1"),
    "tf_keras (TensorFlow 2.16 or later)": ("2.21.0", "tf_keras 2.21.0"),
    "Keras 2 (TensorFlow 2.15)": ("2.15.1", "keras2 2.15.0"),
}
MARKS = {"": "✓", KNOWN_DEVIATION: "≈", UNSUPPORTED: "○"}
# Verdict of a reproduction -> what the reproduction answered.
ANSWERS = {KNOWN_DEVIATION: "deviation", PASSED: "promise held", UNSUPPORTED: "cannot tell"}
# Campaign -> the commands that print it, for the run directories in DIRECTORY or the packed FILE.
CAMPAIGNS: Mapping[str, tuple[str, ...]] = {
    "benchmarks": ("reports show --format md DIRECTORY/*",),
    "drift": ("suite.campaigns drift FILE",),
    "soak": ("reports soak DIRECTORY/*",),
    "gate": ("suite.campaigns trials FILE",),
    "pinning": (
        "suite.campaigns trials --comparisons 1 --runs '*-pinned' FILE",
        "suite.campaigns trials --comparisons 1 --runs '*-free' FILE",
    ),
}


# --- Markdown -------------------------------------------------------------------------------------


def cell(text: object) -> str:
    """Return text for a table's cell: one line, with what Markdown would interpret escaped."""
    parts = re.split(r"(`[^`]+`)", " ".join(str(text).split()))
    marks = r"([\\|<>*_\[\]$])"
    return "".join(p if p.startswith("`") else re.sub(marks, r"\\\1", p) for p in parts)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def fenced(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def raw_html(text: str) -> str:
    return f"```{{raw}} html\n{text}\n```\n"


def picture(svg: str, caption: str) -> str:
    """Return an inline SVG, which has its own text for screen readers, with a caption."""
    shown = html_module.escape(caption)
    return raw_html(f'<figure class="drawn">{svg}<figcaption>{shown}</figcaption></figure>')


# --- from the tables of the project ---------------------------------------------------------------


def trainer_status(trainer: Trainer, tensorflow: str, keras: str) -> str:
    """Return the status of a whole approach: "" if it trains, or that of the row about it."""
    label = keras if trainer.keras else "none"
    rows = Expectations.load()
    row = rows.match(trainer.name, ANY, trainer.backends[0], tensorflow, label)
    return row.status if row else ""


def support_rows() -> str:
    """Return the rows of the README's table of what works."""
    rows = []
    for trainer in TRAINERS:
        marks = [MARKS[trainer_status(trainer, *versions)] for versions in EXAMINED.values()]
        rows.append([f"`{trainer.name}`", *marks])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def trainers() -> str:
    rows = []
    for row in TRAINERS:
        jobs = ", ".join(f"{count} {job}" for job, count in row.jobs)
        devices = f", {row.devices} devices" if row.devices > 1 else ""
        rows.append(
            [
                f"`{row.name}`",
                f"[document]({row.document})",
                cell(row.api),
                (jobs or "1 process") + devices,
                ", ".join(map(code, row.backends)) if row.backends != ("none",) else "",
            ]
        )
    parts = [table(("trainer", "document", "trains with", "tasks", "backends"), rows)]
    for row in TRAINERS:
        families = ", ".join(f"[{f}](claims/{f}.md)" for f in row.families)
        parts.append(f"## {row.name}\n")
        parts.append(f"Claims: {families}.\n")
        parts.append(f"Events: {', '.join(map(code, row.events))}.\n")
        parts.append(f"Flags: {', '.join(f'`--{flag}`' for flag in row.flags)}.\n")
    return "\n".join(parts)


def claims_index() -> str:
    from suite.meta import claims_page

    rows = []
    for family, listed in claims_page.families().items():
        shown = ", ".join(f"[{claim.id}](claims/{family}.md#{claim.anchor})" for claim in listed)
        rows.append([f"[{family}](claims/{family}.md)", shown])
    tree = "\n".join(f"claims/{family}" for family in claims_page.families())
    return f"{table(('family', 'claims'), rows)}\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def write_claims() -> None:
    """Write the page of each family below docs/reference/claims, which git ignores."""
    from suite.meta import claims_page

    directory = DOCS / "reference" / "claims"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for family in claims_page.families():
        (directory / f"{family}.md").write_text(claims_page.page(family), encoding="utf-8")


def deviations() -> str:
    rows = Expectations.load().rows
    parts = []
    for status, title in ((KNOWN_DEVIATION, "Known deviations"), (UNSUPPORTED, "Unsupported")):
        shown = [
            [
                "all" if row.trainer == ANY else code(row.trainer),
                _tests(row),
                cell(_when(row)),
                f"{cell(row.reason)} ([link]({row.url}))" + _finding(row),
            ]
            for row in rows
            if row.status == status
        ]
        parts += [f"## {title}\n", table(("trainer", "tests", "only with", "reason"), shown)]
    return "\n".join(parts)


def _finding(row: Row) -> str:
    """Return a link to the program that shows the deviation without the suite, if there is one."""
    name = row.finding
    kind = "md" if (DOCS / "findings" / f"{name}.md").is_file() else "py"
    return f" ([reproduction](../findings/{name}.{kind}))" if name else ""


def _tests(row: Row) -> str:
    if row.test != ANY:
        return ", ".join(map(code, row.test.split("|")))
    excepted = ", ".join(map(code, row.excepted))
    return f"all but {excepted}" if excepted else "all"


def _when(row: Row) -> str:
    yes_no = {
        "a GPU per worker": row.gpu,
        "real MNIST": row.real_mnist,
        "namespaces": row.namespaces,
        "netem": row.netem,
    }
    parts = [
        f"TensorFlow {row.tensorflow}" if row.tensorflow else "",
        row.keras,
        f"backend {row.backend}" if row.backend else "",
        row.scene,
        *(f"{'' if given else 'no '}{name}" for name, given in yes_no.items() if given is not None),
    ]
    return "; ".join(filter(None, parts))


PROMISES = [value for value in vars(promises).values() if isinstance(value, promises.Promise)]


def name_of(promise: promises.Promise) -> str:
    """Return the name of the promise, in words."""
    (name,) = (name for name, value in vars(promises).items() if value is promise)
    return name.lower().replace("_", " ")


def faults() -> str:
    kinds = []
    for name, fault in matrix.FAULTS.items():
        needs = [
            "virtual hosts" if fault.on_hosts else "",
            "its own disk" if fault.on_disk else "",
        ]
        effect = "no task is lost" if fault.harmless else "the task is lost"
        kinds.append([code(name), fault.description, effect, ", ".join(filter(None, needs))])
    points = [[name, point.description] for name, point in INJECTION_POINTS.items()]
    rows = []
    for row in matrix.ROWS:
        for trainer in TRAINERS:
            if row.means_something(trainer):
                reaction, again = name_of(row.promise(trainer)), row.restarted(trainer)
                variant = cell(row.variant(trainer))
                rows.append([code(row.name), code(trainer.name), variant, reaction, again])
    return "\n".join(
        [
            "## Faults\n",
            table(("fault", "what happens to the target", "effect", "needs"), kinds),
            "## Injection points\n",
            table(("injection point", "when"), points),
            "## Promises\n",
            table(
                ("promise", "what the documents promise"),
                ((name_of(promise), promise.description) for promise in PROMISES),
            ),
            "## Rows\n",
            table(("row", "trainer", "target, injection point", "promise", "restarted"), rows),
        ]
    )


def options() -> str:
    rows = []
    for row in OPTIONS.values():
        flag = f"{row.flag} {row.metavar}".strip()
        rows.append([code(flag), cell(row.help) + (" (repeatable)" if row.repeatable else "")])
    return table(("option", "meaning"), rows)


def commands() -> str:
    parts = []
    for row in reports_command.COMMANDS:
        rows = [
            [code(f"{', '.join(names)} {settings.get('metavar', '')}".strip()), _help(settings)]
            for names, settings in row.options
        ]
        codes = {**reports_command.CODES, **row.codes}
        parts += [
            f"## {row.name}\n",
            fenced(f"$ python -m reports {row.name} [OPTIONS] {' '.join(row.runs)}", "console"),
            f"{row.help[:1].upper()}{row.help[1:]}.\n",
            table(("option", "meaning"), rows) if rows else "",
            table(("exit code", "meaning"), [[str(n), cell(codes[n])] for n in sorted(codes)]),
        ]
    return "\n".join(parts)


def _help(settings: Mapping[str, Any]) -> str:
    text = cell(settings.get("help", ""))
    choices = settings.get("choices")
    return f"{', '.join(map(code, choices))}; {text}" if choices else text


def events() -> str:
    rows = [[code(name), ", ".join(map(code, fields))] for name, fields in SCHEMA.items()]
    return table(("event", "fields"), rows)


def columns() -> str:
    parts = []
    for title, schema in (("Measurements", frame.MEASUREMENTS), ("Verdicts", frame.VERDICTS)):
        rows = [[code(field.name), cell(field.type)] for field in schema]
        parts += [f"## {title}\n", table(("column", "type"), rows)]
    return "\n".join(parts)


def verdicts() -> str:
    rows = [
        [row.mark, code(row.name), cell(row.meaning), "yes" if row.red else "no"]
        for row in reversed(VERDICTS)
    ]
    return table(("mark", "verdict", "meaning", "fails the run"), rows)


def published_figures() -> str:
    drawn = published.draws()
    rows = []
    for figure in published.figures():
        ranges = {row.quantity: row for row in published.prediction_intervals(figure.setup, drawn)}
        for quantity, value in figure.values.items():
            allowed = ranges[quantity]
            inside = "yes" if not published.outside({quantity: value}, [allowed]) else "**no**"
            shown = f"{allowed.low:.4f} to {allowed.high:.4f}"
            name = f"[{cell(figure.name)}]({figure.url})"
            rows.append([name, code(figure.setup), cell(quantity), f"{value:.4f}", shown, inside])
    head = ("figure", "set-up", "quantity", "document", "99 % range of our seeds", "in range")
    return table(head, rows)


# --- from other files -----------------------------------------------------------------------------


def page_of(name: str) -> str:
    """Return the file of the root without its title, with links as the site needs them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split("\n", 1)[1]


# File of the root -> its page, from docs.
PAGES = {"CONTRIBUTING.md": "how-to/extend.md", "CHANGELOG.md": "reference/changelog.md"}


def readme() -> str:
    """Return the README with links that hold from docs/index.md."""

    def moved(link: re.Match[str]) -> str:
        target = link[1]
        if target.startswith("docs/"):
            return target.removeprefix("docs/")
        return PAGES.get(target, f"../{target}")

    return LINK.sub(moved, (ROOT / "README.md").read_text(encoding="utf-8"))


# --- from recorded runs ---------------------------------------------------------------------------


def printed(arguments: Sequence[str]) -> str:
    """Return what `python -m` prints with these arguments, run in this process."""
    if arguments[0] == "reports":
        main: Callable[[Sequence[str]], int] = reports_command.main
    else:
        from suite.campaigns import __main__ as campaigns_command

        main = campaigns_command.main
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(OUTPUT_COLUMNS)
    try:
        with contextlib.redirect_stdout(out):
            status = main(list(arguments[1:]))
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    if status == reports_command.BAD_INPUT:
        raise RuntimeError(f"python -m {' '.join(arguments)}: exit code {status}")
    return out.getvalue()


def run_dir(name: str) -> Path:
    path = RECORDED / name
    if not path.is_dir():
        raise RuntimeError(f"docs/recorded/{name} is missing")
    return path


@cache
def recorded(name: str) -> frame.RunFrames:
    return frame.load(run_dir(name))


def _provenance(run: frame.RunFrames) -> str:
    machine, versions = run.info["machine"], run.info["versions"]
    return (
        f"Recorded on {run.info['start'][:10]} with TensorFlow {versions['tensorflow']}, "
        f"{machine['cores']} cores of {machine['cpu']}.\n"
    )


def recorded_command(name: str) -> str:
    command = re.sub(r" --run-dir \S+", "", recorded(name).info["command"])
    paired = "pytest suite/benchmarks/test_paired.py"
    return fenced(f"$ {command.replace(paired, 'python -m reports ab')}", "console")


def shown(name: str) -> str:
    return printed(["reports", "show", str(run_dir(name))])


def recorded_show(name: str) -> str:
    """Return the conformance table of the run, its notes, and the table of throughput."""
    text = shown(name)
    start = text.index("\nConformance\n") + 1
    end = text.index("\n\n", text.index("\nThroughput\n"))
    excerpt = f"...\n{text[start:end]}\n..."
    return f"{_provenance(recorded(name))}\n{fenced(excerpt)}"


def recorded_faults(name: str) -> str:
    command = fenced("$ python -m reports faults latest", "console")
    text = printed(["reports", "faults", str(run_dir(name))])
    return f"{command}\n{_provenance(recorded(name))}\n{fenced(text)}"


def recorded_ab(name: str) -> str:
    text = printed(["reports", "ab", str(run_dir(name))])
    return f"{_provenance(recorded(name))}\n{fenced(text)}"


def recorded_timeline(name: str) -> str:
    """Return the timeline of the first fault of the run."""
    found = fault_timelines.draw_all(recorded(name))
    if not found:
        raise RuntimeError(f"docs/recorded/{name} has no events of a fault")
    first = found[0]
    caption = f"{first.approach}: {first.fault} of {first.variant}. Seconds since the fault."
    return picture(first.svg, caption) + "\n" + picture(
        fault_timelines.legend(), "The marks of the timeline."
    )  # fmt: skip


def recorded_page(name: str) -> str:
    """Return a frame with the page of the run, which `write_pages` writes, and a chart of it."""
    path = f"../_static/recorded/{name}.html"
    (chart,) = section_charts.throughput_chart(recorded(name))
    return (
        picture(chart[1], "One chart of the page: throughput by case, with each process.")
        + f'\nThis is the page of the recorded run. <a href="{path}">Open it alone</a>.\n\n'
        + raw_html(
            f'<iframe class="run-page" src="{path}" loading="lazy" '
            'title="The page of the recorded run: result, tables, charts and timelines"></iframe>'
        )
    )


def write_pages(static: Path) -> None:
    """Write the pages of recorded runs that are shown, below the static files of the site."""
    (static / "recorded").mkdir(parents=True, exist_ok=True)
    text = html.render(recorded("one-approach"))
    (static / "recorded" / "one-approach.html").write_text(text, encoding="utf-8")


def evidence(name: str) -> str:
    """Return the commands of a campaign with what they print."""
    file = EVIDENCE / f"{name}.parquet"
    if not file.is_file():
        return f"*docs/evidence/{name}.parquet is not in this checkout.*\n"
    shown = {"FILE": f"docs/evidence/{name}.parquet", "DIRECTORY": f"/tmp/{name}"}
    parts = []
    with tempfile.TemporaryDirectory() as directory:
        given = {"FILE": str(file), "DIRECTORY": directory}
        for command in CAMPAIGNS[name]:
            lines = [f"$ python -m {_filled(command, shown)}"]
            if "DIRECTORY" in command:
                unpack = "suite.campaigns unpack FILE DIRECTORY"
                lines.insert(0, f"$ python -m {_filled(unpack, shown)}")
                printed(shlex.split(_filled(unpack, given)))
            text = printed(list(_globbed(shlex.split(_filled(command, given)))))
            parts.append(fenced("\n".join(lines), "console"))
            parts.append(demoted(text) if " md " in command else fenced(text))
    return "\n".join(parts)


def _filled(command: str, names: Mapping[str, str]) -> str:
    return re.sub("FILE|DIRECTORY", lambda name: names[name[0]], command)


def _globbed(words: Iterable[str]) -> Iterable[str]:
    for word in words:
        if word.endswith("/*"):
            yield from map(str, sorted(Path(word[:-2]).iterdir()))
        else:
            yield word


# Sections of a run's Markdown that a page of figures leaves out.
LEFT_OUT = (
    "Distributed training",
    "Conformance",
    "Known deviations",
    "Training curves",
    "Published figures",
    "Memory of each task",
    "Other measurements",
    "Every verdict",
    "About this run",
)


def demoted(markdown: str) -> str:
    """Return a report's Markdown for a section of a page: bold lines instead of headings."""
    text = re.sub(r"</?sub>|</details>", "", markdown)
    text = re.sub(r"<details><summary>(.*?)</summary>", r"### \1", text)
    sections = re.split(r"^#+ ", text, flags=re.MULTILINE)
    kept = [part for part in sections if part.strip() and not _is_left_out(part)]
    return "\n".join(re.sub(r"^(.*)$", r"**\1**", part, count=1, flags=re.M) for part in kept)


def _is_left_out(section: str) -> bool:
    title = section.split("\n", 1)[0]
    return any(name in title for name in LEFT_OUT)


# Column of the overview of faults -> trainer, Keras flavor and TensorFlow of its recorded verdicts.
FAULT_COLUMNS: Mapping[str, tuple[str, str, str]] = {
    "`fit`, multi-worker": ("keras_multi_worker_mirrored", "tf_keras", "2.21"),
    "custom loop, multi-worker": ("custom_loop_multi_worker_mirrored", "tf_keras", "2.21"),
    "Supervisor": ("supervisor_parameter_server", "none", "2.21"),
    "coordinator": ("coordinator_parameter_server", "tf_keras", "2.21"),
    "one process": ("single_process", "tf_keras", "2.21"),
    "Estimator, 2.15": ("estimator_multi_worker_mirrored", "none", "2.15"),
}


def fault_overview(name: str) -> str:
    """Return the rows of the fault matrix by approach, from the recorded runs of the campaign."""
    file = EVIDENCE / f"{name}.parquet"
    if not file.is_file():
        return f"*docs/evidence/{name}.parquet is not in this checkout.*\n"
    with tempfile.TemporaryDirectory() as directory:
        printed(["suite.campaigns", "unpack", str(file), directory])
        runs = [frame.load(path) for path in sorted(Path(directory).iterdir())]
    found = {}
    for run in runs:
        numbers = run.measurements.groupby(["test", "metric"])["value"].median()
        for row in run.verdicts.to_dict("records"):
            case = row["trainer"], str(row["keras"]).split(" ")[0], row["tensorflow"][:4]
            found[re.split(r"\[", row["test"])[-1], case] = _fault_cell(row, numbers)
    rows = []
    for row in matrix.ROWS:
        cells = []
        for case in FAULT_COLUMNS.values():
            test = re.compile(rf"{re.escape(row.name)}-{case[0]}[-\]]")
            cells.append(
                next((c for (t, k), c in found.items() if k == case and test.match(t)), "")
            )
        again = f", {row.restart} restarted" if row.restart else ""
        rows.append([code(row.fault), f"{row.target}, {row.injection_point}{again}", *cells])
    commands = (
        f"$ python -m suite.campaigns unpack docs/evidence/{name}.parquet /tmp/{name}",
        f"$ python -m reports faults /tmp/{name}/*   # every approach, on both versions",
    )
    head = ("fault", "target, injection point", *FAULT_COLUMNS)
    return f"{fenced(chr(10).join(commands), 'console')}\n{table(head, rows)}"


def _fault_cell(row: Mapping[str, Any], numbers: Any) -> str:
    if row["verdict"] != PASSED:
        return MARKS.get(row["verdict"], row["verdict"])
    detected, recovered, lost = (
        numbers.get((row["test"], metric)) for metric in fault_matrix.SPREAD_METRICS
    )
    parts = [
        "ok" if detected is None else f"fail in {detected:.1f}",
        "" if recovered is None else f"{recovered:.1f}",
        "" if lost is None else f"{lost:.0f}",
    ]
    return "; ".join(filter(None, parts))


def pages_in(folder: str) -> str:
    """Return the contents of a folder of pages; Sphinx refuses an empty one."""
    found = sorted(path.relative_to(DOCS) for path in (DOCS / folder).rglob("*.md"))
    if not found:
        return ""
    listed = "\n".join(path.with_suffix("").as_posix() for path in found)
    hidden = ":hidden:\n" if folder == "findings" else ""  # its pages are in a table
    return f"```{{toctree}}\n:maxdepth: 1\n{hidden}\n{listed}\n```\n"


def findings() -> str:
    """Return the reproductions, with what their docstrings say and their outcomes."""
    outcomes, kinds = reproduced()
    rows = []
    for path in sorted((DOCS / "findings").glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        does, _, observed = text.partition("\n\n")
        observed = observed.split("Exit code")[0]
        title = path.with_suffix(".md").read_text("utf-8").split("\n")[0].lstrip("# ")
        link = f"[{cell(title)}](findings/{path.stem}.md)"
        shown = [outcomes.get((path.stem, kind), "") for kind in kinds]
        rows.append([link, f"{cell(does)} {cell(observed)}", *map(cell, shown)])
    return table(("finding", "its program", *map(cell, kinds)), rows)


def reproduced() -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return outcome and seconds by finding and versions, and the versions in order."""
    outcomes = {}
    for run in parquet_file.load(DOCS / "evidence" / "findings.parquet"):
        for row in run.verdicts.to_dict("records"):
            finding = row["test"].partition("[")[2].partition("-")[0]
            answer = ANSWERS.get(row["verdict"], row["verdict"])
            kind = f"TensorFlow {row['tensorflow']}, {row['keras']}"
            outcomes[finding, kind] = f"{answer}, {row['duration_s']:.0f} s"
    return outcomes, sorted({kind for _, kind in outcomes})


PARTS: Mapping[str, Callable[..., str]] = {
    "trainers": trainers,
    "claims-index": claims_index,
    "deviations": deviations,
    "faults": faults,
    "options": options,
    "commands": commands,
    "events": events,
    "columns": columns,
    "verdicts": verdicts,
    "published-figures": published_figures,
    "contributing": lambda: page_of("CONTRIBUTING.md"),
    "changelog": lambda: page_of("CHANGELOG.md"),
    "readme": readme,
    "pages-in": pages_in,
    "findings": findings,
    "recorded-command": recorded_command,
    "recorded-show": recorded_show,
    "recorded-faults": recorded_faults,
    "recorded-ab": recorded_ab,
    "recorded-timeline": recorded_timeline,
    "recorded-page": recorded_page,
    "evidence": evidence,
    "fault-overview": fault_overview,
}


def expanded(text: str) -> str:
    """Return a page with each marker replaced by its part; raise KeyError for an unknown part."""

    def part(marker: re.Match[str]) -> str:
        arguments = [marker[2]] if marker[2] else []
        return PARTS[marker[1]](*arguments)

    return MARKER.sub(part, text)
