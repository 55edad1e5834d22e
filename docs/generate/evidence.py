"""Make the parts that come from the campaigns in docs/evidence."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.core.verdicts import PASSED
from reports.render import markdown as render
from reports.rundir import frame
from reports.sections import fault_matrix
from suite.campaigns import mutants, parquet_file, public_programs
from suite.harness.faults import matrix
from suite.harness.tables.expectations import KNOWN_DEVIATION, UNSUPPORTED
from suite.mutants import __main__ as mutant_command
from suite.mutants import catalog, running

from .markdown import cell, code, fenced, table
from .paths import DOCS, EVIDENCE
from .printing import printed
from .reference import MARKS

# Verdict of a reproduction -> what the reproduction answered.
ANSWERS = {KNOWN_DEVIATION: "deviation", PASSED: "promise held", UNSUPPORTED: "cannot tell"}

# Campaign -> the commands that print it, for the run directories in DIRECTORY or the packed FILE.
CAMPAIGNS: Mapping[str, tuple[str, ...]] = {
    "benchmarks": ("reports show --format md DIRECTORY/*",),
    "documented": ("reports ab --format md DIRECTORY/*",),
    "drift": ("suite.campaigns drift FILE",),
    "engines": ("reports engines DIRECTORY/*",),
    "many-workers": ("suite.campaigns workers FILE",),
    "soak": ("reports soak DIRECTORY/*",),
    "whole-runs": ("reports soak DIRECTORY/*",),
    "gate": ("suite.campaigns trials FILE",),
    "pinning": (
        "suite.campaigns trials --comparisons 1 --runs '*-pinned' FILE",
        "suite.campaigns trials --comparisons 1 --runs '*-free' FILE",
    ),
}


def campaign(name: str) -> str:
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


def mutant_catalog() -> str:
    """Return the score of the catalog of mutants, and what found each of them."""
    rows = {row.name: row for row in catalog.load()}
    found = running.recorded(EVIDENCE / "mutant-catalog.jsonl")
    known = [rows[name] for name in rows if name in found]
    score = mutant_command.score(known, [found[row.name] for row in known])
    lines = [
        (
            code(row.file),
            cell(row.mistake),
            ", ".join(map(code, found[row.name].by))
            or cell(row.equivalent or found[row.name].outcome),
        )
        for row in known
    ]
    return f"{fenced(score)}\n{table(('file', 'mistake', 'found by'), lines)}"


def ratio_trials() -> str:
    """Return what the trials of ratios print for the campaigns `gate` and `days-later`."""
    files = [EVIDENCE / "gate.parquet", EVIDENCE / "days-later.parquet"]
    names = " ".join(f"docs/evidence/{file.name}" for file in files)
    command = f"$ python -m suite.campaigns ratios {names}"
    text = printed(["suite.campaigns", "ratios", *map(str, files)])
    return f"{fenced(command, 'console')}\n{fenced(text)}"


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


def gate_durations() -> str:
    """Return pairs and minutes of the comparisons of the campaign `gate`, by processor."""
    with tempfile.TemporaryDirectory() as directory:
        printed(["suite.campaigns", "unpack", str(EVIDENCE / "gate.parquet"), directory])
        by_cpu: dict[str, list[frame.RunFrames]] = {}
        for path in sorted(Path(directory).iterdir()):
            run = frame.load(path)
            by_cpu.setdefault(run.info["machine"]["cpu"], []).append(run)
        rows = [[cell(cpu), *_gate_durations(runs)] for cpu, runs in sorted(by_cpu.items())]
    head = (
        "processor",
        "comparisons",
        "ended before the budget",
        "pairs",
        "minutes",
        "outside of timed steps",
    )
    commands = (
        "$ python -m suite.campaigns unpack docs/evidence/gate.parquet /tmp/gate",
        "$ python -m reports ab /tmp/gate/*   # each comparison",
    )
    return f"{fenced(chr(10).join(commands), 'console')}\n{table(head, rows)}"


def _gate_durations(runs: Sequence[frame.RunFrames]) -> list[str]:
    directories = [str(run.directory) for run in runs]
    found = json.loads(printed(["reports", "ab", "--format", "json", *directories]))
    minutes = [run.verdicts["duration_s"].sum() / 60 for run in runs]
    pairs = [one["pairs"] for one in found]
    timed = 2 * sum(one["timed_s"] for one in found)  # of both sides, in turns
    return [
        str(len(found)),
        str(sum(one["ended"] == "enough" for one in found)),
        f"{min(pairs)} to {max(pairs)}",
        f"{min(minutes):.0f} to {max(minutes):.0f}",
        f"{100 * (1 - timed / 60 / sum(minutes)):.0f} %",
    ]


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


def found_mutants() -> str:
    """Return the mutants with the tests that find them, from the recorded run."""
    file = EVIDENCE / "mutants.parquet"
    command = "$ python -m suite.campaigns mutants docs/evidence/mutants.parquet"
    shown = render.one_table(mutants.table(parquet_file.load(file)), titled=False)
    return f"{fenced(command, 'console')}\n{shown}"


def public() -> str:
    """Return what each level gave for the public programs, and what was found in them."""
    runs = parquet_file.load(EVIDENCE / "public-programs.parquet")
    command = "$ python -m suite.campaigns public docs/evidence/public-programs.parquet"
    tables = (public_programs.table(runs), public_programs.findings(runs))
    shown = [render.one_table(table, titled=False) for table in tables]
    return "\n\n".join([fenced(command, "console"), *shown])


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
