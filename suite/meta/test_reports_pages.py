"""Tests that pages show the whole run, keep verdicts apart and escape everything else."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from reports.charts import by_section, svg
from reports.core.verdicts import VERDICTS
from reports.render import html, markdown, run_facts, terminal
from reports.rundir import frame
from reports.sections import conformance, registry, throughput, training_curves
from suite.harness.pytest_plugin import run_directory_plugin
from suite.meta import made_up_run

made_up = made_up_run.made_up
REASONS = {row["reason"] for row in made_up_run.verdicts() if "reason" in row}
SMALLEST = 9.0  # font size in points of a chart, 11.5 pixels at the page's smallest scale
VOID = {"meta", "input", "wbr", "link", "br", "img"}


class Page(HTMLParser):
    """Elements, text and addresses of a page; `problems` lists tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.problems: list[str] = []
        self.within_word = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]
        self.within_word = tag == "wbr"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.within_word = False
        if self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.within_word:
            self.text[-1] += data
        else:
            self.text.append(data)
        self.within_word = False

    def values(self, *names: str) -> list[tuple[str, str]]:
        """Return (element, value) of every attribute with one of these names."""
        found = [(tag, attrs.get(name)) for tag, attrs in self.elements for name in names]
        return [(tag, value) for tag, value in found if value is not None]


@pytest.fixture(scope="module")
def run(made_up: Path) -> frame.RunFrames:
    return frame.load(made_up)


@pytest.fixture(scope="module")
def page(made_up: Path) -> Page:
    return Page((made_up / "report.html").read_text())


def unmeasured(run: frame.RunFrames, directory: Path, **info: Any) -> frame.RunFrames:
    """Return the run without numbers and events, and so without charts, which take time."""
    empty = run.measurements.iloc[:0]
    return frame.RunFrames(directory, {**run.info, **info}, empty, run.verdicts)


def flat(text: str) -> str:
    return " ".join(text.split())


def printed(run: frame.RunFrames, width: int, encoding: str = "utf-8", full: bool = True) -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, write_through=True)
    terminal.summary(run, Console(file=stream, width=width), full=full)
    return buffer.getvalue().decode(encoding)


def test_page_is_well_formed(page: Page):
    ids = [value for _, value in page.values("id")]
    assert page.problems == []
    assert page.open == []
    assert len(ids) == len(set(ids))


def test_page_loads_nothing(made_up: Path, page: Page):
    text = (made_up / "report.html").read_text()
    loads = page.values("src", "srcset", "data", "poster", "background", "action", "xlink:href")
    assert [value for _, value in loads if not value.startswith("#")] == []
    assert {tag for tag, value in page.values("href") if not value.startswith("#")} == {"a"}
    assert not {"link", "iframe", "img", "object", "embed", "base"} & {t for t, _ in page.elements}
    assert re.findall(r"url\((?!#)|@import", text) == []
    assert "default-src 'none'" in text


def test_page_links_resolve(page: Page):
    ids = {value for _, value in page.values("id")}
    inner = {value[1:] for _, value in page.values("href") if value.startswith("#")}
    assert inner
    assert inner <= ids


def test_page_has_every_verdict_with_evidence(run: frame.RunFrames, page: Page):
    text = flat(" ".join(page.text))
    rows = [attrs for tag, attrs in page.elements if tag == "tr" and "data-kind" in attrs]
    assert sorted(str(row["data-kind"]) for row in rows) == sorted(run.verdicts["verdict"])
    for row in made_up_run.verdicts():
        for key in ("test", "reproduce", "url", "reason"):
            assert flat(frame.text.clean(row.get(key, ""))) in text
        assert ", ".join(row["claims"]) in text
    assert flat(made_up_run.DIAGNOSIS) in text


def test_facts_name_the_nodes_of_a_ray_cluster(run: frame.RunFrames):
    node = {"host": "a", "address": "10.0.0.1", "cpus": 8, "memory_gib": 31.2, "kernel": "6.1"}
    clock = {"clock_error_s": 0.00021, "clock_drift_s": -0.0005}
    nodes = [{**node, **clock}, {**node, **clock, "gpus": 2}] * run_facts.NODES
    facts = dict(run_facts.facts(replace(run, info={**run.info, "engine": {"nodes": nodes}})))
    assert facts["Node 1"] == (
        "a at 10.0.0.1, 8 cores, 31.2 GiB, kernel 6.1; clock known to 0.21 ms, moved by -0.5 ms "
        "during the run"
    )
    assert "31.2 GiB, 2 GPUs, kernel 6.1" in facts["Node 2"]
    assert facts["More nodes"] == f"{run_facts.NODES}, see run.json"
    assert not any(name.startswith("Node") for name, _ in run_facts.facts(run))


def test_page_has_facts_numbers_and_charts(run: frame.RunFrames, page: Page):
    text = flat(" ".join(page.text))
    for label, value in run_facts.facts(run):
        assert label == "Command" or label in text
        assert value in text
    charts = [attrs["aria-label"] for tag, attrs in page.elements if tag == "svg"]
    assert charts == [
        "Throughput by case",
        "Marks of the timelines",
        f"Timeline of {made_up_run.FAULTED}, {made_up_run.SUPERVISOR}",
        f"Training of {made_up_run.MULTI}",
        "Startup by variant: cluster_first_all_reduce_s",
        "Clusters over time",
    ]
    for expected in ("12.00 ±0.30", "requested nccl, actual ring", "0.125", "94.0", "12.5"):
        assert expected in text


def test_charts_belong_to_sections():
    assert set(by_section.CHARTS) <= {section.name for section in registry.SECTIONS}


def test_only_web_addresses_become_links(run: frame.RunFrames, tmp_path: Path):
    verdicts = run.verdicts.assign(url="javascript:alert(1)")
    other = frame.RunFrames(tmp_path, run.info, run.measurements.iloc[:0], verdicts)
    hrefs = [value for _, value in Page(html.render(other)).values("href")]
    assert not [value for value in hrefs if value.startswith("javascript")]
    assert "<javascript" not in markdown.render(other)


def test_six_verdicts_are_distinct_on_every_page(run: frame.RunFrames, page: Page):
    tiles = [value.split()[1] for _, value in page.values("class") if value.startswith("tile ")]
    assert tiles == [row.name for row in reversed(VERDICTS)]
    assert len({row.mark for row in VERDICTS}) == len({row.ascii_mark for row in VERDICTS}) == 6
    assert len(set(markdown.EMOJI.values())) == 6
    for text in (markdown.render(run), printed(run, 80), printed(run, 80, "ascii")):
        for row in VERDICTS:
            assert row.counted(run.counts[row.name]) in flat(text)


def test_markdown_has_every_verdict_and_reason(run: frame.RunFrames):
    text = markdown.render(run)
    for row in made_up_run.verdicts():
        assert f"`{row['test']}`" in text
    for reason in REASONS:
        assert markdown.escape(frame.text.clean(reason)) in text
    assert text.count("<details>") == text.count("</details>") > 0


def test_markdown_tables_keep_their_columns(run: frame.RunFrames):
    rows = [line for line in markdown.render(run).splitlines() if line.startswith("|")]
    blocks = re.split(r"\n(?!\|)", markdown.render(run))
    for block in blocks:
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1
    assert rows


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("_x_ a_b *c* `d` [e](f)", r"\_x\_ a_b \*c\* \`d\` \[e\](f)"),
        ("- no list", r"\- no list"),
        ("1. no list", r"1\. no list"),
        ("line\n# line", r"line \# line"),
        ("back\\slash", r"back\\slash"),
    ],
)
def test_markdown_escapes_text(text: str, shown: str):
    assert markdown.escape(text) == shown


def test_markdown_code_may_contain_backticks():
    assert markdown.code("a`b") == "``a`b``"
    assert markdown.code("`a`") == "`` `a` ``"
    assert markdown.code("a|b", in_table=True) == r"`a\|b`"


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_summary_fits_terminal(run: frame.RunFrames, width: int, encoding: str):
    lines = printed(run, width, encoding).splitlines()
    # Text to copy stays in one piece at any width.
    whole = re.compile(r"  pytest '|  https://|Report: ")
    assert [line for line in lines if len(line) > width and not whole.match(line)] == []
    assert "\x1b" not in "".join(lines)


def test_summary_of_session_fits_columns(
    run: frame.RunFrames, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setenv("COLUMNS", "60")
    terminal.summary(run, run_directory_plugin.console())
    lines = capsys.readouterr().out.splitlines()
    assert "✓ passed   ○ unsupported   ≈ known deviation" in lines
    assert "↑ unexpected pass   ! harness error   ✗ failed" in lines


def test_section_broken_only_in_summary_fails_session(
    run: frame.RunFrames, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    def broken(*_: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(terminal, "_print_findings", broken)
    lines: list[str] = []
    own: Any = SimpleNamespace(
        recorder=SimpleNamespace(leaks=[], zygote_restarts=[]),
        session=SimpleNamespace(engine=SimpleNamespace(network=SimpleNamespace(warning=""))),
        config=SimpleNamespace(option=SimpleNamespace(dist="no", durations=None)),
        pytest_session=SimpleNamespace(exitstatus=pytest.ExitCode.OK),
        problem="",
        written=run,
        failures=None,
    )
    reporter: Any = SimpleNamespace(write_line=lambda line, **_: lines.append(line))
    run_directory_plugin.Controller.pytest_terminal_summary(own, reporter)
    note = "section What did not pass could not be rendered: KeyError: 'a bug'"
    assert note in flat(capsys.readouterr().out)
    assert lines[-1] == note
    assert own.pytest_session.exitstatus == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("width", [80, 140])
def test_summary_has_the_essentials(run: frame.RunFrames, width: int):
    text = printed(run, width, full=False)
    for expected in (
        "convergence",
        "✗ failed, 1 test: keras_multi_worker_mirrored · tf_keras 2.21.0",
        "≈ known deviation, 2 tests: keras_multi_worker_mirrored · keras3 3.15.1",
        made_up_run.THREAD,
        "12.00 ±0.30",
        f"Report: {run.directory / 'report.html'}",
    ):
        assert expected in text
    assert flat(made_up_run.NASTY.replace("\x1b[31m", "").replace("\x1b[0m", "")) in flat(text)
    assert re.search(r"nccl +ring +2 +3 ", text)


def test_long_reason_is_cut_in_summary_and_full_in_show(run: frame.RunFrames):
    verdicts = run.verdicts.assign(reason="word " * 200 + "end")
    long = frame.RunFrames(run.directory, run.info, run.measurements, verdicts)
    assert "full text in the report" in flat(printed(long, 80, full=False))
    assert "word end" in flat(printed(long, 80, full=True))


def test_missing_timings_are_explained(run: frame.RunFrames, tmp_path: Path):
    parallel = unmeasured(run, tmp_path, xdist_workers=2)
    for text in (printed(parallel, 80), markdown.render(parallel), html.render(parallel)):
        assert "Timings were not taken: 2 pytest workers shared the machine" in flat(text)
    assert "No throughput was measured" in throughput.table(unmeasured(run, tmp_path)).note


def test_pages_explain_durations(run: frame.RunFrames, tmp_path: Path):
    for page in (
        markdown.render(unmeasured(run, tmp_path)),
        html.render(unmeasured(run, tmp_path)),
    ):
        assert conformance.DURATIONS in flat(page)


def test_empty_run_says_so(run: frame.RunFrames, tmp_path: Path):
    info = {**run.info, "machine": {}, "versions": {}, "network": {}, "data": {}, "git": {}}
    empty = frame.RunFrames(tmp_path, info, run.measurements.iloc[:0], run.verdicts.iloc[:0])
    for text in (printed(empty, 80), markdown.render(empty), html.render(empty)):
        assert "No test gave a verdict." in text
        assert "not recorded" in text
        assert "no event files of a healthy cluster" in text


def test_findings_merge_for_equal_verdict_reason_and_link(run: frame.RunFrames):
    same = run.verdicts.assign(reason="same", url="")
    kinds = [finding.verdict.name for finding in conformance.findings(same)]
    assert kinds == ["failed", "harness_error", "unexpected_pass", "known_deviation", "unsupported"]
    for verdict in ("failed", "unsupported"):
        (finding,) = conformance.findings(same.assign(verdict=verdict))
        assert sorted(finding.tests) == sorted(same["test"])
        assert len(finding.approaches) == 4
        assert finding.heading().endswith(", 19 tests of 4 approaches")
        assert finding.properties(made_up_run.SUPERVISOR).startswith("checkpoint, convergence (2)")
        assert len(finding.by_approach[made_up_run.SUPERVISOR]) == 6
    half = same.assign(verdict="unsupported", url=["https://a.org", ""] * 9 + [""])
    assert sorted(len(f.tests) for f in conformance.findings(half)) == [9, 10]


def test_merged_failures_have_every_reproduce_line(run: frame.RunFrames):
    same = run.verdicts.assign(reason="same", url="", verdict="failed")
    shown = printed(frame.RunFrames(run.directory, run.info, run.measurements, same), 80)
    assert shown.count("same\n") == 1
    for command in same["reproduce"]:
        assert f"  {command}\n" in shown


def test_red_findings_without_reason_are_not_merged(run: frame.RunFrames):
    unknown = run.verdicts.assign(reason="", verdict="failed")
    assert len(conformance.findings(unknown)) == len(unknown)


def test_finding_names_all_its_approaches(run: frame.RunFrames):
    same = run.verdicts.assign(reason="same", url="", verdict="unsupported")
    other = frame.RunFrames(run.directory, run.info, run.measurements.iloc[:0], same)
    for text in (printed(other, 140), flat(" ".join(Page(html.render(other)).text))):
        assert text.count("same") in (1, 1 + len(same))  # and next to each verdict
        for name in conformance.findings(same)[0].approaches:
            assert f"{name}: " in text
    assert "19 tests of 4 approaches" in markdown.render(other)


def test_page_starts_with_result_and_ends_with_facts(page: Page):
    ids = [value for tag, value in page.values("id") if tag == "section"]
    assert ids[:3] == ["attention", "conformance", "findings"]
    assert ids[-1] == "about"
    text = flat(" ".join(page.text))
    before, after = text.split("What needs attention", 1)
    assert "1 harness error" in before
    assert before.count("60,000 to train") == 1
    assert "SHA-256 of the data" not in before
    assert after.index("no space left for <logs>") < after.index("fit fails: got <b>PerReplica")
    assert after.index("Every verdict") < after.index("SHA-256 of the data")


def test_leak_needs_attention(run: frame.RunFrames, tmp_path: Path):
    leaked = unmeasured(run, tmp_path, leaks=["process 7"])
    assert "Leaked: process 7" in html.render(leaked)


def test_page_has_matrix_per_folder(run: frame.RunFrames, page: Page):
    names = [value for _, value in page.values("aria-label") if value.endswith(", by approach")]
    assert names == [f"{folder}, by approach" for folder in conformance.FOLDERS]
    matrices = conformance.by_folder(run.verdicts)
    assert [len(matrix.columns) for matrix in matrices.values()] == [6, 1, 1]
    cells = sum(cell.total for matrix in matrices.values() for cell in matrix.cells.values())
    assert cells == len(run.verdicts)


def test_matrix_cell_names_column_and_filters_tests(page: Page):
    cells = {str(attrs["data-search"]) for tag, attrs in page.elements if "data-search" in attrs}
    assert "conformance/test_published_figures.py" in cells
    columns = [attrs for tag, attrs in page.elements if attrs.get("class") == "column"]
    assert len(columns) == len([attrs for _, attrs in page.elements if "data-search" in attrs])


def test_tables_and_charts_scroll_by_keyboard(made_up: Path):
    text = (made_up / "report.html").read_text()
    for tag, box in (("table", "wide"), ("svg", "chart")):
        boxes = re.findall(
            rf'<div class="{box}" role="group" aria-label="[^"]+" tabindex="0">\s*<{tag}', text
        )
        assert len(boxes) == len(re.findall(f"<{tag}[ >]", text)) > 0
    long = re.findall(r'<pre class="diagnosis" role="group" aria-label="[^"]+" tabindex="0">', text)
    assert len(long) == text.count('<pre class="diagnosis"') > 0


def test_long_names_break_between_parts(made_up: Path):
    text = (made_up / "report.html").read_text()
    name = made_up_run.SUPERVISOR.replace("_", "_<wbr>")
    for before, after in (("</span> ", "</h3>"), ("<summary>", ":"), ("<span>", "</span>")):
        assert before + name + after in text
    assert made_up_run.THREAD.replace("/", "/<wbr>") + "</a>" in text


def test_chart_text_is_readable(made_up: Path):
    text = (made_up / "report.html").read_text()
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert float(svg.STYLE["font.size"]) >= SMALLEST
    assert min(map(float, re.findall(r"font-size: ([\d.]+)px", drawn))) >= SMALLEST


def test_curves_are_of_healthy_clusters_only(made_up: Path):
    (curve,) = training_curves.of_run(frame.load(made_up))
    assert (curve.cluster, curve.backend, curve.workers) == ("healthy-ring", "ring", 2)
    assert [step for step, _ in curve.steps] == list(range(1, 13))
    assert curve.steps[0][1] == pytest.approx(2.3)  # the mean of 2.4 and 2.2
    assert [epoch for epoch, _ in curve.epochs] == [1, 2, 3]


@pytest.mark.parametrize("line", ["no json", "[]", '{"event": "step"}', '{"event": "step", "task'])
def test_damaged_event_files_give_no_curve(tmp_path: Path, line: str):
    made_up_run.write_events(tmp_path)
    path = tmp_path / "events" / "healthy-ring" / "worker-1.jsonl"
    path.write_text(line + "\n" + path.read_text())
    assert training_curves.read(tmp_path) == []
