"""Tests of the phases of clusters, and of the section and the chart that show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reports.charts import time_use_chart
from reports.rundir import phases
from reports.rundir.phases import Cluster
from reports.sections import time_use
from suite.meta import made_up_run

Event = tuple[str, float, str]
HEALTHY: Sequence[Event] = (
    ("spawned", 10.0, "worker/0"),
    ("spawned", 10.5, "worker/1"),
    ("started", 12.0, "worker/0"),
    ("started", 13.0, "worker/1"),
    ("joined", 14.0, "worker/0"),
    ("joined", 14.5, "worker/1"),
    ("step", 16.0, "worker/0"),
    ("step", 17.5, "worker/1"),
    ("step", 20.0, "worker/0"),
    ("exited", 22.0, "worker/1"),
)


def events(given: Sequence[Event], attempt: int = 0) -> list[dict[str, Any]]:
    return [{"event": n, "time_s": s, "task": t, "attempt": attempt} for n, s, t in given]


def seconds(found: list[dict[str, Any]]) -> dict[str, float]:
    cluster = phases.of_events("made_up", sorted(found, key=lambda e: e["time_s"]))
    assert cluster is not None
    return cluster.seconds()


def test_a_phase_ends_when_the_slowest_task_has_passed_it():
    assert seconds(events(HEALTHY)) == {
        "start": 3.0,
        "connect": 1.5,
        "first step": 3.0,
        "training": 2.5,
        "end": 2.0,
    }


def test_recovery_lasts_from_the_fault_to_the_last_step():
    fault = events([("fault_started", 18.0, "harness"), ("spawned", 19.0, "worker/1")])
    again = events([("started", 19.5, "worker/1"), ("step", 21.0, "worker/1")], attempt=1)
    found = seconds(events(HEALTHY) + fault + again)
    assert (found["training"], found["fault"], found["end"]) == (0.5, 3.0, 1.0)


@pytest.mark.parametrize(
    ("left_out", "phases_of_it"),
    [
        (("step",), {"start": 3.0, "connect": 1.5, "other": 7.5}),
        (("joined",), {"start": 3.0, "first step": 4.5, "training": 2.5, "end": 2.0}),
        (("started", "joined", "step"), {"other": 12.0}),
    ],
)
def test_time_of_a_phase_that_is_not_reported_belongs_to_the_next(
    left_out: Sequence[str], phases_of_it: dict[str, float]
):
    assert seconds([e for e in events(HEALTHY) if e["event"] not in left_out]) == phases_of_it


def test_a_cluster_without_a_task_has_no_phases():
    assert phases.of_events("made_up", events([("fault_started", 1.0, "harness")])) is None


def made_up(*spans: tuple[float, float]) -> list[Cluster]:
    return [Cluster("made_up", (("training", begin, end),)) for begin, end in spans]


def test_clusters_that_overlap_are_in_different_lanes():
    clusters = made_up((0, 4), (1, 2), (2, 3), (5, 6))
    assert [[c.begin_s for c in row] for row in phases.rows_of(clusters)] == [[0, 5], [1, 2]]
    assert phases.busy_s(clusters) == 5


def write(directory: Path, scenarios: dict[str, str]) -> Any:
    """Write a run with these event files: directory of the cluster -> content."""
    verdict = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    run = made_up_run.write_numbers(directory, made_up_run.INFO, [], [verdict])
    for name, content in scenarios.items():
        (directory / "events" / name).mkdir(parents=True)
        (directory / "events" / name / "all.jsonl").write_text(content)
    return run


LINES = "".join(json.dumps(event) + "\n" for event in events(HEALTHY))


def test_the_section_has_a_line_for_each_scenario(tmp_path: Path):
    scenarios = {"001-healthy": LINES, "base-002-healthy": LINES, "003-late": LINES}
    run = write(tmp_path / "run", {**scenarios, "004-damaged": "{}\n"})
    table = time_use.table(run)
    assert [row.cells for row in table.rows] == [
        ("healthy", "2", "24.0", "25", "12", "25", "21", "17"),
        ("late", "1", "12.0", "25", "12", "25", "21", "17"),
    ]
    assert "3 clusters, 3.0 at a time on average" in table.note
    ((_, svg),) = time_use_chart.time_use_chart(run)
    assert "seconds since the first cluster" in svg


def test_many_scenarios_are_one_line(tmp_path: Path):
    run = write(tmp_path / "run", {f"{i:03}-scenario_{i}": LINES for i in range(25)})
    rows = time_use.table(run).rows
    assert len(rows) == time_use.MOST + 1
    assert rows[-1].cells[:2] == ("5 other scenarios", "5")


def test_a_run_without_events_has_no_chart(tmp_path: Path):
    run = write(tmp_path / "run", {})
    assert not time_use.table(run).rows
    assert time_use_chart.time_use_chart(run) == []
