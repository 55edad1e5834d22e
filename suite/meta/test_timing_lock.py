"""Tests that one of several runs on a machine times at a time, and that none waits forever."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from suite.harness.session import timing_lock
from suite.harness.session.timing_lock import TimingLock

PATIENCE_S = 60.0
HOLD = """
import socket
lock = socket.socket(socket.AF_UNIX)
lock.bind({address!r})
{listen}
print("held", flush=True)
input()
"""


@pytest.fixture(autouse=True)
def own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a lock name that no real run requests."""
    monkeypatch.setattr(timing_lock, "NAME", f"test-{uuid.uuid4().hex}")


@pytest.fixture(params=["lock.listen()", ""], ids=["a run", "a program that took the name"])
def holder(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """Yield another process that holds the lock."""
    program = HOLD.format(address=TimingLock(0).address, listen=request.param)
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_lock_is_taken_and_given_back():
    one, other = TimingLock(PATIENCE_S), TimingLock(0)
    one.acquire(pytest.fail)
    one.acquire(pytest.fail)
    other.acquire(pytest.fail)
    assert (one.held, other.held) == (True, False)
    one.release()
    one.release()
    other.acquire(pytest.fail)
    assert (one.held, other.held) == (False, True)
    other.release()


def test_lock_passes_to_the_run_that_waits():
    one, other = TimingLock(PATIENCE_S), TimingLock(PATIENCE_S)
    one.acquire(pytest.fail)
    assert one.socket
    with ThreadPoolExecutor(1) as pool:
        said: list[str] = []
        waiting = pool.submit(other.acquire, said.append)
        connections = [one.socket.accept() for _ in range(2)]  # for its holder; for its end
        one.release()
        for connection, _ in connections:
            connection.close()
        waiting.result()
    assert other.held
    assert len(said) == 1
    assert 0 < other.patience_s < PATIENCE_S
    other.release()


def test_lock_ends_with_its_process(holder: subprocess.Popen[str]):
    own = TimingLock(PATIENCE_S)
    own.acquire(lambda _: holder.kill())
    assert own.held
    own.release()


@pytest.mark.usefixtures("holder")
def test_patience_is_bounded_for_a_whole_run():
    own, said = TimingLock(0.1), []
    for _ in range(3):
        own.acquire(said.append)
        assert not own.held
    assert [text.split(" ")[0] for text in said] == ["waiting", "another"]
    assert own.patience_s == 0


def test_forbidden_names_are_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timing_lock, "NAME", "x" * 200)  # the system also refuses an overlong name
    own = TimingLock(PATIENCE_S)
    own.acquire(pytest.fail)
    assert not own.held
