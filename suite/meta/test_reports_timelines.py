"""Tests of timelines: a history's events by lane, in a small picture for any history."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from reports.charts import fault_timelines
from reports.rundir import event_files as read_by_reports
from reports.rundir import frame
from suite.meta import made_up_run
from suite.meta.made_up_run import event, write_lines

made_up = made_up_run.made_up
ENDED: dict[str, Any] = {"code": 0, "signal": None, "ended_by_harness": False}


def written(directory: Path, *events: dict[str, Any]) -> fault_timelines.Timeline:
    """Return the timeline of these events, which are divided between two files."""
    for number, half in enumerate((events[::2], events[1::2])):
        write_lines(directory / f"{number}.jsonl", half)
    found = fault_timelines.read(directory)
    assert found is not None
    return found


def spawned(task: str, time_s: float, attempt: int = 0) -> dict[str, Any]:
    return event("spawned", time_s, task, attempt=attempt, pid=1)


def fault(time_s: float = 100.0, task: str = "worker/1", name: str = "any") -> dict[str, Any]:
    return event("fault_started", time_s, task, fault=name)


def test_lanes_start_with_chief_in_numeric_order(tmp_path: Path):
    tasks = ("ps/0", "worker/10", "worker/2", "worker/1", "evaluator/0")
    made = [spawned(task, i) for i, task in enumerate(tasks)]
    chief = event("joined", 9.0, "worker/2", chief=True)
    line = written(tmp_path, *made, chief, fault())
    assert [lane.task for lane in line.lanes] == [
        *("worker/2", "worker/1", "worker/10", "evaluator/0", "ps/0")
    ]


def test_lane_has_each_life_of_task(tmp_path: Path):
    killed = {**ENDED, "code": None, "signal": 9, "ended_by_harness": True}
    line = written(
        tmp_path,
        spawned("worker/1", 90.0),
        fault(),
        event("exited", 100.5, "worker/1", **killed),
        spawned("worker/1", 103.0, attempt=1),
        event("step", 110.0, "worker/1", attempt=1),
    )
    (lane,) = line.lanes
    assert (line.start_s, line.end_s) == (-10.0, 10.0)
    assert list(lane.lives(line.end_s)) == [(-10.0, 0.5), (3.0, 10.0)]
    assert lane.exits == [(0.5, "SIGKILL", True)]
    assert lane.steps == [10.0]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"code": 42, "signal": None}, "exit 42"),
        ({"code": None, "signal": int(signal.SIGSEGV)}, "SIGSEGV"),
        ({"code": None, "signal": 99}, "signal 99"),
    ],
)
def test_timeline_names_exit_of_life(tmp_path: Path, how: dict[str, Any], words: str):
    ended = event("exited", 101.0, "worker/1", **{**ENDED, **how})
    line = written(tmp_path, spawned("worker/1", 90.0), fault(), ended)
    assert words in fault_timelines.draw(line, "x")


def test_coordinator_steps_are_in_lanes_of_workers(tmp_path: Path):
    made = [spawned(task, 90.0) for task in ("chief/0", "worker/0", "worker/1")]
    by = {"worker/0": 3, "worker/1": 0}
    line = written(tmp_path, *made, event("executed", 95.0, "chief/0", by=by), fault())
    assert [lane.steps for lane in line.lanes] == [[], [-5.0], []]


def test_fault_without_task_is_drawn_without_lane(tmp_path: Path):
    healed = event("fault_ended", 105.0, "link", fault="partition")
    task = spawned("worker/0", 90.0)
    line = written(tmp_path, task, fault(task="link", name="partition"), healed)
    assert [lane.task for lane in line.lanes] == ["worker/0"]
    assert [what for what, _, _ in line.faults] == ["fault_started", "fault_ended"]
    assert fault_timelines.draw(line, "x").count(fault_timelines.RED) == 2  # the two vertical lines


def test_distant_steps_are_not_merged(tmp_path: Path):
    steps = [event("step", time_s, "worker/1") for time_s in (0.0, 50.0, 50.1, 50.4, 100.0)]
    line = written(tmp_path, spawned("worker/1", 0.0), *steps, fault(0.0))
    strokes = fault_timelines.strokes(line.lanes[0], line)
    assert len(strokes) == 3
    assert all(a <= b <= line.end_s for a, b in strokes)
    assert [a for a, _ in strokes] == pytest.approx([0, 50, 100], abs=line.stroke_s)


def test_timeline_is_small_for_many_events(tmp_path: Path):
    tasks = ("worker/0", "worker/1", "ps/0", "ps/1")
    made = [spawned(task, 0.0) for task in tasks]
    # Groups of steps, for the largest possible number of strokes.
    made += [event("step", i // 8 + i % 8 / 100, task) for task in tasks[:2] for i in range(2000)]
    made += [
        event(name, i / 2, tasks[0]) for name in ("epoch", "checkpoint_saved") for i in range(500)
    ]
    line = written(tmp_path, *made, fault(120.0))
    assert sum(len(lane.steps) for lane in line.lanes) == 4_000
    assert len(fault_timelines.draw(line, "x")) < 25_000


@pytest.mark.parametrize(
    "line",
    ["no json", "[]", '{"event": "step"}', '{"event": "exited", "time_s": 1, "task": "a", "x": 1}'],
)
def test_damaged_history_is_not_drawn(tmp_path: Path, line: str):
    written(tmp_path, spawned("worker/1", 90.0), fault())
    (tmp_path / "0.jsonl").write_text(line + "\n" + (tmp_path / "0.jsonl").read_text())
    assert fault_timelines.read(tmp_path) is None


def test_timeline_is_missing_without_fault(tmp_path: Path):
    assert fault_timelines.read(tmp_path / "missing") is None
    write_lines(tmp_path / "a.jsonl", [spawned("worker/1", 90.0)])
    assert fault_timelines.read(tmp_path) is None


def test_run_has_timeline_of_each_faulted_cluster(made_up: Path):
    run = frame.load(made_up)
    (picture,) = fault_timelines.draw_all(run)
    assert (picture.fault, picture.variant) == ("sigkill", "worker, mid-epoch")
    assert picture.test == run.verdicts.query("fault != ''")["test"].item()
    assert made_up_run.FAULTED in picture.svg
    for words in ("worker/0", "worker/1", "SIGKILL", "exit 1", "seconds since the fault"):
        assert words in picture.svg


def test_timeline_escapes_task_names(tmp_path: Path):
    task = "<script>$x$\x1b[31m&\x00"
    drawn = fault_timelines.draw(written(tmp_path, spawned(task, 90.0), fault(task=task)), "x")
    assert "&lt;script&gt;$x$&amp;" in drawn
    assert not re.search(r"[\x00-\x08\x1b]|<script", drawn)


def test_history_is_read_in_order_of_time(made_up: Path):
    events = read_by_reports.of_cluster(made_up / "events" / made_up_run.FAULTED)
    assert [e["event"] for e in events][:2] == ["spawned"] * 2
    assert [e["event"] for e in events][-3:] == ["fault_started", "exited", "exited"]


def test_invalid_event_is_named_by_file_and_line(tmp_path: Path):
    path = tmp_path / "worker-0.0.jsonl"
    line = '{"event": "step", "time_s": %s, "task": "worker/0\u2028", "attempt": 0}\n'
    path.write_text(line % "1.0" + line % '"soon"' + line[:20])
    with pytest.raises(ValueError, match=rf"^{path}:2: no event: time_s is 'soon', not a number$"):
        read_by_reports.of_cluster(tmp_path)
