"""Make the parts that come from tables of the project."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from reference_trainers import TRAINERS
from reference_trainers.support.events import SCHEMA
from reports import __main__ as reports_command
from reports.core.verdicts import VERDICTS
from reports.rundir import frame
from suite.harness.core.settings import OPTIONS
from suite.harness.faults import matrix, promises
from suite.harness.faults.injection_points import INJECTION_POINTS
from suite.harness.metrics import published_ranges as published
from suite.harness.tables.expectations import ANY, KNOWN_DEVIATION, UNSUPPORTED, Expectations, Row

from .markdown import cell, code, fenced, table
from .paths import DOCS

MARKS = {"": "✓", KNOWN_DEVIATION: "≈", UNSUPPORTED: "○"}


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
        "nodes that can be ended": row.nodes,
        "netem": row.netem,
    }
    parts = [
        f"TensorFlow {row.tensorflow}" if row.tensorflow else "",
        row.keras,
        f"protobuf {row.protobuf}" if row.protobuf else "",
        f"backend {row.backend}" if row.backend else "",
        row.scene,
        "may pass" if row.may_pass else "",
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
            "its own node" if fault.on_node else "",
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
