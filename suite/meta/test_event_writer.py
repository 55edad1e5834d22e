"""Tests of the event writer: order, times and whole lines, written at once or soon."""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from reference_trainers.support import events
from reference_trainers.support.events import EventWriter
from suite.harness.core.deadlines import wait_until
from suite.harness.core.paths import ROOT


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path to which new writers write."""
    monkeypatch.setenv("TRAINER_EVENTS", str(tmp_path / "events.jsonl"))
    monkeypatch.setenv("TRAINER_ATTEMPT", "2")
    return tmp_path / "events.jsonl"


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call of write_soon be late, so that none writes."""
    monkeypatch.setattr(events, "SOON_S", math.inf)


def step(writer: EventWriter, number: int) -> None:
    later = {"loss": 0.5, "examples": 8}
    writer.write_soon("step", later=lambda: later, step=number, global_step=number)


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_say_who_when_and_in_which_life(path: Path):
    before_s = time.monotonic()
    EventWriter("ps/1").write("served", clusters=0, values=[])
    (event,) = read(path)
    assert (event["event"], event["task"], event["attempt"]) == ("served", "ps/1", 2)
    assert before_s <= event["time_s"] <= time.monotonic()


@pytest.mark.usefixtures("never_late")
def test_steps_that_follow_at_once_wait_for_each_other(path: Path):
    writer = EventWriter()
    step(writer, 1)
    step(writer, 2)
    assert read(path) == []
    writer.write("finished", global_step=2, steps=2)
    found = read(path)
    assert [e.get("step") for e in found] == [1, 2, None]
    assert [e["loss"] for e in found[:2]] == [0.5, 0.5]
    times = [e["time_s"] for e in found]
    assert times == sorted(times)


@pytest.mark.usefixtures("never_late")
@pytest.mark.parametrize("anywhere", [True, False])
def test_fields_are_read_by_the_thread_of_the_call_or_anywhere(path: Path, anywhere: bool):
    """With those that any thread may read, an event is written although none follows."""
    writer = EventWriter()
    readers: list[int] = []

    def fetch() -> dict:
        readers.append(threading.get_ident())
        return {"loss": 0.5, "examples": 8}

    with writer._writing:
        writer.write_soon("step", later=fetch, anywhere=anywhere, step=1, global_step=1)
        writer.write_soon("scheduled", steps=1)
    if anywhere:
        wait_until("the step", lambda: len(read(path)) == 2, 10)
    else:
        threading.Event().wait(2 * events.THREAD_S)
        assert read(path) == []  # the order is kept
        writer.flush()
    assert [e["event"] for e in read(path)] == ["step", "scheduled"]
    assert (readers == [threading.get_ident()]) != anywhere


@pytest.mark.parametrize("how", ["write", "write_soon"])
@pytest.mark.usefixtures("never_late")
def test_an_error_of_late_fields_is_raised_by_the_next_event(path: Path, how: str):
    """The other steps are written, and the writer goes on."""
    writer = EventWriter()
    late = [{"loss": 0.5, "examples": 8}, None, {"loss": 0.5, "examples": 8}]

    def fetch(number: int) -> dict:
        found = late[number - 1]
        if found is None:
            raise OSError("the loss is gone")
        return found

    with writer._writing:  # the thread waits
        for number in (1, 2, 3):
            fields = {"step": number, "global_step": number}
            late_fields = functools.partial(fetch, number)
            writer.write_soon("step", later=late_fields, anywhere=True, **fields)
    wait_until("the error", lambda: writer._error is not None and writer._has_more_to_do, 10)
    with pytest.raises(OSError, match="the loss is gone"):
        getattr(writer, how)("finished", global_step=3, steps=3)
    writer.flush()
    assert [e.get("step") for e in read(path)] == [1, 3, None]


@pytest.mark.usefixtures("never_late")
def test_event_time_is_when_it_happened_not_when_written(path: Path):
    writer = EventWriter()
    step(writer, 1)
    happened_s = time.monotonic()
    writer.flush()
    assert read(path)[0]["time_s"] <= happened_s


def test_a_process_that_ends_leaves_nothing_unwritten(path: Path):
    """This includes a process that exits with an error."""
    program = (
        "from reference_trainers.support import events; events.THREAD_S = 3600\n"
        "events.SOON_S = float('inf'); writer = events.EventWriter()\n"
        "writer.write_soon('step', step=1, global_step=1, loss=1.0, examples=1)\n"
        "raise SystemExit(3)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert ended.returncode == 3
    assert [e["step"] for e in read(path)] == [1]


def test_tensors_are_read_in_time_by_a_thread_that_goes_on_training(path: Path):
    """The thread that may not read them does not delay that: steps of DTensor would queue."""
    writer = EventWriter()
    for number in range(1, 4):
        step(writer, number)
        threading.Event().wait(2 * events.SOON_S)
        assert len(read(path)) == number


def test_tensors_are_read_in_time_although_no_other_event_has_some(path: Path):
    writer = EventWriter()
    writer.write("served", clusters=0, values=[])
    step(writer, 1)
    for number in range(1, 30):
        writer.write_soon("scheduled", steps=number)
        threading.Event().wait(events.SOON_S / 10)
    assert len(read(path)) > 2


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[str]]:
    """Yield a locked file that makes new writers wait after step 2."""
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        monkeypatch.setenv("TRAINER_HOLD", f"step:2:{file.name}")
        yield file


@pytest.mark.parametrize("how", ["write", "write_soon"])
def test_task_blocks_after_the_step_for_which_it_is_held(path: Path, lock, how: str):
    """The task has reported the step, and waits until it is released."""
    writer = EventWriter()

    def train() -> None:
        for number in (1, 2, 3):
            getattr(writer, how)("step", step=number, global_step=number, loss=0.5, examples=8)
        writer.flush()

    training = threading.Thread(target=train)
    training.start()
    try:
        wait_until("step 2", lambda: path.exists() and len(read(path)) == 2, 10)
        training.join(0.2)
        assert training.is_alive()
        assert [e["step"] for e in read(path)] == [1, 2]
    finally:
        lock.close()
        training.join()
    assert [e["step"] for e in read(path)] == [1, 2, 3]


@pytest.mark.usefixtures("lock")
def test_program_without_a_harness_is_not_held(monkeypatch):
    monkeypatch.delenv("TRAINER_EVENTS", raising=False)
    step(EventWriter(), 2)


@pytest.mark.parametrize("hold", ["step:2", "step:two:{}", "stop:2:{}", "step:2:{}.not"])
@pytest.mark.usefixtures("path")
def test_a_hold_that_cannot_be_is_refused(lock, monkeypatch, capfd, hold: str):
    monkeypatch.setenv("TRAINER_HOLD", hold.format(lock.name))
    monkeypatch.setattr(os, "_exit", lambda code: sys.exit(code))
    with pytest.raises(SystemExit, match="2"):
        EventWriter()
    assert "not EVENT:STEP:FILE with a file that is there" in capfd.readouterr().err


def test_threads_lose_and_mix_nothing(path: Path):
    writer = EventWriter()

    def save() -> None:
        for number in range(200):
            writer.write("checkpoint_saved", path="p", global_step=number, seconds=0.0)

    other = threading.Thread(target=save)
    other.start()
    for number in range(200):
        step(writer, number)
    other.join()
    writer.flush()
    found = read(path)
    for name, key in (("step", "step"), ("checkpoint_saved", "global_step")):
        assert [e[key] for e in found if e["event"] == name] == list(range(200))


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [("step", {"step": 1}, "global_step, loss, examples"), ("stepp", {}, "stepp")],
)
def test_an_event_that_is_not_in_the_vocabulary_is_refused(path: Path, name, fields, problem):
    with pytest.raises(KeyError, match=problem):
        EventWriter().write(name, **fields)
    assert read(path) == []


def test_without_trainer_events_nothing_is_written_or_asked_for(monkeypatch):
    monkeypatch.delenv("TRAINER_EVENTS", raising=False)
    writer = EventWriter()
    writer.write("no such event")
    writer.write_soon("step", later=lambda: pytest.fail("was fetched"))
    assert not writer.enabled
