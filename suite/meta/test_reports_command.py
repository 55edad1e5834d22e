"""Tests of `python -m reports`: its output, its files and its one-line refusals."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reports
from reports import __main__ as command
from reports.charts import by_section
from reports.render import html, markdown, pages, terminal
from reports.rundir import frame
from reports.sections import registry
from suite.meta import made_up_run

made_up = made_up_run.made_up


def change_info(directory: Path, **changes: Any) -> None:
    info = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**info, **changes}))


def without_key(directory: Path, key: str) -> None:
    info = json.loads((directory / "run.json").read_text())
    del info[key]
    (directory / "run.json").write_text(json.dumps(info))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def change_column(path: Path, name: str, values: pa.Array | None) -> None:
    table = pq.read_table(path).drop_columns([name])
    pq.write_table(table if values is None else table.append_column(name, values), path)


def constant(path: Path, value: Any) -> pa.Array:
    return pa.array([value] * pq.read_table(path).num_rows)


def run_json(text: str) -> Callable[[Path], Any]:
    return lambda run: (run / "run.json").write_text(text)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gone": (shutil.rmtree, "does not exist"),
    "no run.json": (lambda run: (run / "run.json").unlink(), "killed"),
    "a status of its own": (lambda run: change_info(run, status="over"), "has a 'status'"),
    "empty run.json": (run_json(""), "is not JSON"),
    "half a run.json": (run_json('{"run_id": "x", '), "is not JSON"),
    "a list in run.json": (run_json("[1, 2]"), "does not hold a JSON object"),
    "bytes in run.json": (lambda run: (run / "run.json").write_bytes(b"\xff\xfe{"), "decode"),
    "deep run.json": (run_json("[" * 100_000), "run.json"),
    "no seed": (lambda run: without_key(run, "seed"), "has no 'seed'"),
    "a seed of text": (lambda run: change_info(run, seed="one"), "not a whole number"),
    "a start of text": (lambda run: change_info(run, start="today"), "today"),
    "a start without a zone": (
        lambda run: change_info(run, start="2026-01-02T03:04:05"),
        "without a zone",
    ),
    "counts of another run": (
        lambda run: change_info(run, counts=dict.fromkeys(frame.verdicts.NAMES, 1)),
        "disagree",
    ),
    "no count of failed": (lambda run: change_info(run, counts={}), "no count"),
    "another run's id": (lambda run: change_info(run, run_id="other"), "another run"),
    "no measurements": (lambda run: (run / "measurements.parquet").unlink(), "is missing"),
    "half the verdicts": (lambda run: truncate(run / "verdicts.parquet"), "cannot be read"),
    "empty verdicts": (lambda run: (run / "verdicts.parquet").write_text(""), "cannot be read"),
    "no column of values": (
        lambda run: change_column(run / "measurements.parquet", "value", None),
        "lacks the column 'value'",
    ),
    "values of text": (
        lambda run: change_column(
            run / "measurements.parquet", "value", constant(run / "measurements.parquet", "fast")
        ),
        "another type",
    ),
    "a seventh verdict": (
        lambda run: change_column(
            run / "verdicts.parquet", "verdict", constant(run / "verdicts.parquet", "skipped")
        ),
        "none of the six",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_run_is_rejected_in_one_line(made_up: Path, tmp_path: Path, capsys: Any, name: str):
    damage, message = DAMAGE[name]
    directory = shutil.copytree(made_up, tmp_path / "run")
    damage(directory)
    for arguments in (["show"], ["show", "--format", "md"], ["html"]):
        assert command.main([*arguments, str(directory)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert message in printed.err


def test_file_is_not_a_run(tmp_path: Path, capsys: Any):
    (tmp_path / "file").write_text("")
    assert command.main(["show", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.endswith("file is not a directory\n")


@pytest.mark.parametrize(
    "arguments",
    [[], ["plot", "x"], ["show"], ["show", "--format", "pdf", "x"], ["html", "x", "--open"]],
)
def test_invalid_command_line_is_rejected_in_one_line(capsys: Any, arguments: list[str]):
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    assert capsys.readouterr().err.count("\n") == 1


def test_show_prints_every_run(made_up: Path, tmp_path: Path, capsys: Any):
    other = made_up_run.write_small(tmp_path / "other", run_id="another-run")
    assert command.main(["show", str(made_up), str(other)]) == 0
    printed = capsys.readouterr().out
    assert f"Run {made_up_run.RUN_ID} failed" in printed
    assert "Run another-run passed" in printed


def test_show_as_markdown_equals_report_of_run(made_up: Path, capsys: Any):
    assert command.main(["show", "--format", "md", str(made_up)]) == 0
    assert capsys.readouterr().out == (made_up / "report.md").read_text()


def broken(*_: Any) -> Any:
    raise KeyError("<a bug> of *ours*")


# Function that renders a part of the pages -> the part's title, the pages that have it.
PARTS = {
    "sections.collectives.tables": ("Collectives", "text md html"),
    "charts.section_charts.throughput_chart": ("Throughput", "html"),
    "sections.conformance.matrix": ("Conformance", "text md html"),
    "sections.conformance.findings": ("What did not pass", "text md html"),
    "sections.conformance.claims": ("Claims", "html"),
    "charts.fault_timelines.draw_all": ("Timelines", "html"),
    "render.html._verdicts": ("Every verdict", "html"),
    "render.markdown._verdicts": ("Every verdict", "md"),
}


@pytest.mark.parametrize("page", ["text", "md", "html"])
def test_each_broken_section_becomes_a_note(
    made_up: Path, tmp_path: Path, monkeypatch: Any, capsys: Any, page: str
):
    """All are broken at once, because a page takes a second; each keeps its own place."""
    for name in PARTS:
        module, _, function = name.rpartition(".")
        monkeypatch.setattr(importlib.import_module(f"reports.{module}"), function, broken)
    # The registry and the charts hold these functions since their import.
    rows = [
        replace(row, tables=broken) if row.title == "Collectives" else row
        for row in registry.SECTIONS
    ]
    for module in (terminal, markdown, html):
        monkeypatch.setattr(module, "SECTIONS", rows)
    monkeypatch.setitem(by_section.CHARTS, "throughput", by_section.Charts(broken))
    file = tmp_path / "page.html"
    command_line = {"text": ["show"], "md": ["show", "--format", "md"], "html": ["html"]}[page]
    given = ["-o", str(file)] if page == "html" else []
    assert command.main([*command_line, str(made_up), *given]) == 2
    printed = capsys.readouterr()
    text = file.read_text() if page == "html" else printed.out
    assert ("Startup" if page == "html" else "Training curves") in text
    broken_titles = {title for title, pages in PARTS.values() if page in pages.split()}
    note = r"section ([\w ]+) could not be rendered: KeyError: "
    assert set(re.findall(note, " ".join(text.split()))) == broken_titles
    assert sorted(re.findall(f"^{note}", printed.err, re.M)) == sorted(broken_titles)
    assert printed.err.count("\n") == len(broken_titles)
    assert page == "text" or "<a bug>" not in text


@pytest.mark.parametrize("name", ["render.markdown.render", "render.html.render"])
def test_broken_page_leaves_run_and_other_page(tmp_path: Path, monkeypatch: Any, name: str):
    directory = made_up_run.write_small(tmp_path / "run")
    module, _, function = name.rpartition(".")
    monkeypatch.setattr(importlib.import_module(f"reports.{module}"), function, broken)
    (note,) = pages.write_pages(frame.load(directory))
    page, other = ("report.md", "report.html")[:: 1 if module == "render.markdown" else -1]
    assert note.startswith(f"{page} could not be rendered: KeyError")
    assert f"{page} could not be rendered" in (directory / page).read_text()
    assert "could not be rendered" not in (directory / other).read_text()


def test_interrupted_run_is_shown_and_not_compared(tmp_path: Path, capsys: Any):
    directory = made_up_run.write_small(tmp_path / "run", status="interrupted", exit_code=2)
    assert command.main(["show", str(directory)]) == 0
    assert f"Run {made_up_run.RUN_ID} interrupted: 1 passed" in capsys.readouterr().out
    assert command.main(["show", "--format", "md", str(directory)]) == 0
    assert "**interrupted: 1 passed" in capsys.readouterr().out
    assert command.main(["html", str(directory)]) == 0
    assert "Interrupted</span>" in (directory / "report.html").read_text()
    capsys.readouterr()
    whole = str(made_up_run.write_small(tmp_path / "whole", run_id="whole"))
    for arguments in (
        ["compare", whole, str(directory)],
        ["compare", whole, whole, "--confirm", str(directory)],
        ["compare", whole, str(tmp_path)],
        ["ab", str(directory)],
        ["faults", whole, str(directory)],
        ["soak", str(directory)],
        ["soak", str(directory / "run.json")],
    ):
        assert command.main(arguments) == 2, arguments
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert "run is an interrupted run" in printed.err.replace("/run.json", "")


def test_html_is_written_to_run_or_file(tmp_path: Path, capsys: Any):
    directory = made_up_run.write_small(tmp_path / "run")
    page = html.render(frame.load(directory))
    assert command.main(["html", str(directory)]) == 0
    assert command.main(["html", str(directory), "-o", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out.split()
    assert printed == [str(directory / "report.html"), str(tmp_path / "page.html")]
    assert (directory / "report.html").read_text() == (tmp_path / "page.html").read_text() == page


@pytest.mark.parametrize("output", [".", "missing/page.html"])
def test_html_fails_if_not_writable(made_up: Path, tmp_path: Path, capsys: Any, output: str):
    assert command.main(["html", str(made_up), "-o", str(tmp_path / output)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", *(row.name for row in command.COMMANDS)])
def test_help_lists_exit_codes(capsys: Any, name: str):
    with pytest.raises(SystemExit, match="0"):
        command.main([*name.split(), "--help"])
    shown = capsys.readouterr().out.split("exit codes:\n")[1].splitlines()
    codes = {int(line.split()[0]) for line in shown}
    judging = {"": {1, 3}, "compare": {1, 3}, "ab": {1, 3}}
    judging["upgrade"] = {1, 3, 130, 143}
    found = ("bisect", "engines", "faults", "submission", "soak", "expectations")
    judging |= {key: {1} for key in found}
    assert codes == {0, 2} | judging.get(name, set())


def test_one_output_file_takes_one_run(made_up: Path, tmp_path: Path, capsys: Any):
    other = made_up_run.write_small(tmp_path / "other", run_id="another-run")
    arguments = ["html", str(made_up), str(other), "-o", str(tmp_path / "page.html")]
    assert command.main(arguments) == 2
    assert "one run" in capsys.readouterr().err


def test_latest_is_target_of_link(made_up: Path, tmp_path: Path, monkeypatch: Any, capsys: Any):
    monkeypatch.chdir(tmp_path)
    (tmp_path / command.RUNS).mkdir(parents=True)
    (tmp_path / command.RUNS / "latest").symlink_to(made_up)
    assert command.main(["show", "latest"]) == 0
    assert made_up_run.RUN_ID in capsys.readouterr().out


def test_latest_is_rejected_before_first_run(tmp_path: Path, monkeypatch: Any, capsys: Any):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "RUNS", Path("nowhere"))
    assert command.main(["show", "latest"]) == 2
    assert "no run yet" in capsys.readouterr().err


def test_closed_pipe_is_no_error(made_up: Path, monkeypatch: Any):
    reading, writing = os.pipe()
    os.close(reading)
    with TextIOWrapper(os.fdopen(writing, "wb", buffering=0), write_through=True) as closed:
        monkeypatch.setattr(command.sys, "stdout", closed)
        assert command.main(["show", str(made_up)]) == 0


def test_reports_import_neither_suite_nor_tensorflow():
    imported = set()
    for path in Path(reports.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    assert not imported & {"suite", "reference_trainers", "tensorflow", "keras", "tf_keras"}
    assert "reports" in imported
