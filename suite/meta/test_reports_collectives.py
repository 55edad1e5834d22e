"""Tests of the collectives report: its tables and charts hold a made-up run completely and once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reports.charts import collective_charts
from reports.core.table import Table
from reports.render import html, markdown, terminal
from reports.rundir import frame
from reports.sections import collectives, other_metrics, registry
from suite.harness.metrics.collective_bandwidth import named
from suite.meta import made_up_run

TEST = made_up_run.test_id("benchmarks", "collectives", "collectives_by_size", "ring")
SIZES = tuple(1024 * 4**k for k in range(9))  # bytes
LINKS = {"10gbit": 1.25, "1gbit": 0.125, "200mbit": 0.025}  # GB/s
ASKED = {"auto": "ring", "ring": "ring"}
UNITS = {"p50_s": "s", "p99_s": "s", "skew_s": "s", "algbw": "GB/s", "busbw": "GB/s"}
# Ratio to the default, of each round.
SETTINGS = {"a": (1.20, 1.22, 1.18, 1.21, 1.19), "b": (1.00, 1.02, 0.98, 1.01, 0.99)}


def row(metric: str, value: float, unit: str, **columns: Any) -> dict[str, Any]:
    given = {"trainer": made_up_run.MULTI, "workers": 2, "backend": "auto", "collective": ""}
    better = "none"
    own = {"metric": metric, "value": value, "unit": unit, "better": better}
    return {**made_up_run.COMMON, "test": TEST, **given, **own, **columns}


def timed(op: str, size: int, link: str = "", **columns: Any) -> Iterator[dict[str, Any]]:
    """Yield rows of one operation on one size, which takes 100 µs plus 1 ns for each byte."""
    p50_s = 1e-4 + 1e-9 * size
    busbw = size / p50_s / 1e9
    values = {"p50_s": p50_s, "p99_s": 2 * p50_s, "cv": 0.05, "skew_s": 1e-5}
    values |= {"algbw": busbw, "busbw": busbw, "share": busbw / 2}
    for short, value in values.items():
        metric, unit = collectives.VALUES[short], UNITS.get(short, "1")
        yield row(metric, value, unit, variant=named(op, size, link), **columns)


def measurements() -> Iterator[dict[str, Any]]:
    for workers in (2, 4):
        for op in ("all_reduce", "broadcast"):
            for backend, collective in ASKED.items():
                got = "tree" if op == "broadcast" else collective
                for size in SIZES:
                    columns = {"workers": workers, "backend": backend, "collective": got}
                    yield from timed(op, size, **columns)
    for link, gb_per_s in {"loopback": 2.0, "whole": 1.5, **LINKS}.items():
        yield row("limit_tcp_gb_per_s", 0.955 * gb_per_s, "GB/s", variant=f"over {link}")
        yield row("limit_tcp_ping_p50_s", 2e-5, "s", variant=f"over {link}")
        yield row("limit_memcpy_gb_per_s", 5.0, "GB/s", variant=f"over {link}")
    yield row("shaped_steps_per_s", 7.5, "1/s", variant="over whole")
    for link, gb_per_s in LINKS.items():
        variant = f"over {link}"
        yield row("limit_link_gb_per_s", gb_per_s, "GB/s", variant=variant)
        yield row("shaped_steps_per_s", min(7.5, 70 * gb_per_s), "1/s", variant=variant)
        yield row("shaped_steps_limit_per_s", 90 * gb_per_s, "1/s", variant=variant)
        yield from timed("all_reduce", SIZES[5], link, collective="ring")
    for setting, ratios in SETTINGS.items():
        for repeat, ratio in enumerate(ratios):
            variant = named("all_reduce", SIZES[5], setting=setting)
            yield row(collectives.SETTING, ratio, "1", variant=variant, repeat=repeat)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> frame.RunFrames:
    directory = tmp_path_factory.mktemp("collectives")
    verdicts = [made_up_run.verdict(made_up_run.MULTI, "collectives", "collectives_by_size")]
    info = {**made_up_run.INFO, "exit_code": 0}
    return made_up_run.write_numbers(directory, info, [*measurements()], verdicts)


@pytest.fixture(scope="module")
def charts(run: frame.RunFrames) -> list[tuple[str, str]]:
    """Return the headings and the drawings, which take seconds."""
    return list(collective_charts.collective_charts(run))


def cells(table: Table, group: str, first: str) -> dict[str, str]:
    """Return the cells of a row, by column name."""
    found = [r.cells for r in table.rows if r.group == group and r.cells[0] == first]
    return dict(zip((c.name for c in table.columns), found[0], strict=True))


def test_collectives_table_has_each_size_and_operation(run):
    table = collectives.table(run)
    assert len(table.rows) == 2 * 2 * 2 * len(SIZES) + len(LINKS)
    assert cells(table, "broadcast, 4 workers", "1 MiB") == {
        "size": "1 MiB",
        "requested": "auto",
        "actual": "tree",
        "n": "1",
        "p50 ms": "1.15",
        "p99 ms": "2.30",
        "CV %": "5.0",
        "skew ms": "0.010",
        "algbw GB/s": "0.913",
        "busbw GB/s": "0.913",
        "busbw / TCP %": "46",
    }
    assert cells(table, "all_reduce, 2 workers, over 1gbit", "1 MiB")["actual"] == "ring"


def test_other_types_and_the_overlap_are_shown(tmp_path: Path):
    of_type = row("collective_busbw_gb_per_s", 1.0, "GB/s")
    of_type["variant"] = named("all_reduce", 1024, dtype="float16")
    during = [
        row(collectives.OVERLAP, share, "1", variant=named("all_reduce", 1024), repeat=i)
        for i, share in enumerate((0.25, 0.5, -0.1))
    ]
    run = made_up_run.write_numbers(tmp_path / "run", made_up_run.INFO, [of_type, *during], [])
    table, overlap = collectives.tables(run)
    assert [line.group for line in table.rows] == ["all_reduce of float16, 2 workers"]
    assert [line.cells for line in overlap.rows] == [("1 KiB", "3", "25")]
    assert "all_reduce of float16, " in "".join(collective_charts.collective_charts(run).__next__())


def test_a_peer_library_has_rows_of_its_own_and_a_ratio(tmp_path: Path):
    of_peer = {"backend": "", "collective": "gloo"}
    own = {"collective": "ring", "variant": named("all_reduce", 1024)}
    ratios = [row("collective_times_gloo", r, "1", repeat=i, **own) for i, r in enumerate((0.5, 2))]
    numbers = [
        *timed("all_reduce", 1024, collective="ring"),
        *timed("all_reduce", 1024, **of_peer),
        *ratios,
    ]
    run = made_up_run.write_numbers(tmp_path / "run", made_up_run.INFO, numbers, [])
    table, peers = collectives.tables(run)
    names = [column.name for column in table.columns]
    actual = {line.cells[names.index("actual")] for line in table.rows}
    assert actual == {"ring", "gloo"}
    (line,) = peers.rows
    assert line.group == "all_reduce, 2 workers"
    assert line.cells[:4] == ("1 KiB", "Gloo", "ring", "2")
    assert line.cells[4].startswith("1.0 ±")


def test_nccl_is_compared_with_gpu_copy(run, tmp_path):
    columns = {"backend": "nccl", "collective": "nccl"}
    timed_on_gpus = [
        {**one, "metric": one["metric"].replace("_of_tcp", "_of_gpu_copy")}
        for one in timed("all_reduce", SIZES[5], **columns)
    ]
    copy = row("limit_gpu_copy_gb_per_s", 20.0, "GB/s", variant="over loopback")
    info = {**made_up_run.INFO, "exit_code": 0}
    on_hosts = [one for one in measurements() if one["metric"].startswith("limit_")]
    rows = [*on_hosts, *timed("all_reduce", SIZES[5], collective="ring"), *timed_on_gpus, copy]
    on_gpus = made_up_run.write_numbers(tmp_path, info, rows, [])
    (found,) = [r.cells for r in collectives.table(on_gpus).rows if r.cells[1] == "nccl"]
    assert found[-2:] == ("", "46")  # busbw / TCP, busbw / GPU copy
    assert collectives.table(on_gpus).columns[-1].name == "busbw / GPU copy %"
    assert collectives.limits(on_gpus).columns[-1].name == "GPU copy GB/s"
    assert "GPU copy 20.0" in next(svg for _, svg in collective_charts.collective_charts(on_gpus))
    # A run without a GPU has no empty GPU columns.
    assert not [c for c in collectives.limits(run).columns if "GPU" in c.name]


def test_collectives_summary_has_largest_sizes_only(run):
    table = collectives.brief(run)
    assert {row.cells[0] for row in table.rows} == {"1 MiB", "64 MiB"}  # the links have one size
    assert len(table.rows) == 2 * 2 * 2 + len(LINKS)


def test_limits_are_shown_with_rate_limit_of_link(run):
    group = "plain TCP between two workers, and memcpy"
    found = cells(collectives.limits(run), group, "200mbit")
    assert (found["rate limit GB/s"], found["TCP GB/s"], found["TCP / limit %"]) == (
        "0.0250",
        "0.0239",
        "95.5",
    )
    assert cells(collectives.limits(run), group, "loopback")["rate limit GB/s"] == ""


def test_best_setting_is_named_with_interval(run):
    table = collectives.settings(run)
    assert table.note.startswith("Fastest: a, 1.200 ±0.0")
    assert [row.cells[0] for row in table.rows] == ["a", "b"]


def test_no_setting_is_best_without_significance(run):
    shown = run.measurements.loc[~run.measurements["variant"].str.endswith("with a")]
    table = collectives.settings(frame.RunFrames(run.directory, run.info, shown, run.verdicts))
    assert table.note.startswith("No setting is significantly faster")


def test_training_is_shown_with_limit_of_link(run):
    found = cells(collectives.training(run), f"{made_up_run.MULTI} · tf_keras 2.21.0", "200mbit")
    assert (found["steps/s"], found["limit steps/s"], found["steps / limit %"]) == (
        "1.75",
        "2.25",
        "77.8",
    )


def test_collectives_are_not_in_other_measurements(run):
    assert other_metrics.table(run, registry.metrics_with_section(run.measurements)).rows == ()


def test_collectives_are_complete_on_every_page(run, charts):
    titles = [table.title for table in collectives.tables(run)]
    assert len(titles) == 4
    page, text = html.render(run), markdown.render(run)
    assert [title for title in titles if title not in page or title not in text] == []
    headings = [heading for heading, _ in charts]
    assert headings == list(collective_charts.CAPTIONS)
    for heading, caption in collective_charts.CAPTIONS.items():
        assert f"<h3>{heading}</h3>" in page
        assert f"<figcaption>{caption}</figcaption>" in page


def test_collective_charts_name_operations_limits_links(charts):
    by_size, by_link, by_bandwidth = (svg for _, svg in charts)
    texts = ("broadcast, auto", "2 workers", "4 workers", "64 MiB", "TCP 1.91", "memcpy 5.00")
    assert [words for words in texts if words not in by_size] == []
    assert "all_reduce, 2 workers, over 200mbit" in by_link
    assert "whole link" in by_bandwidth


@pytest.mark.parametrize(("full", "shown"), [(False, "largest size"), (True, "1e9 bytes")])
def test_terminal_collectives_are_brief_by_default(run, full: bool, shown: str):
    out = io.StringIO()
    terminal.summary(run, Console(file=out, width=100, color_system=None), full=full)
    assert shown in " ".join(out.getvalue().split())


def test_run_without_collectives_has_no_section(tmp_path: Path):
    run = frame.load(made_up_run.write_small(tmp_path))
    assert collectives.tables(run) == []
    assert list(collective_charts.collective_charts(run)) == []
    assert collectives.brief(run).rows == ()


def test_lines_of_equal_color_differ_in_dash_and_marker():
    styles = [str(sorted(collective_charts._style(place).items())) for place in range(18)]
    assert len(set(styles)) == len(styles)
