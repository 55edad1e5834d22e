"""Tests of measured interference: other work on our processors is separated from our own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from suite.harness.core.deadlines import wait_until
from suite.harness.metrics.interference import Watch
from suite.harness.pytest_plugin import provenance

SPINS = "import os\nprint('ready', flush=True)\nwhile os.times().user < 60: pass"
ENDS = SPINS.replace("60", "0.5")


@pytest.fixture
def busy() -> Iterator[int]:
    """Yield the pid of a process that uses a processor."""
    process = subprocess.Popen([sys.executable, "-c", SPINS], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


@pytest.fixture
def idle() -> Iterator[int]:
    """Yield the pid of a process that waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def used_s(pid: int) -> float:
    return psutil.Process(pid).cpu_times().user


def test_other_work_is_foreign_and_our_own_is_not(busy: int, idle: int):
    with Watch() as own, Watch(busy) as its_own, Watch(idle) as other:
        began_s = used_s(busy)
        wait_until("some work", lambda: used_s(busy) > began_s + 0.5, 60)
    assert other.foreign - own.foreign > 0.01
    assert other.foreign - its_own.foreign > 0.01
    assert 0 <= other.steal < 1


def test_what_has_ended_was_our_own(idle: int):
    """Count a grandchild that has ended by the end of the watch as our own work."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ENDS!r}], check=True)"
    with Watch() as own, Watch(idle) as other:
        subprocess.run([sys.executable, "-c", child], check=True)
    assert other.foreign - own.foreign > 0.01


@pytest.mark.parametrize(("asked", "expected"), [(None, ["2", None]), (3, [3, 3])])
def test_threads_are_those_asked_for_or_of_the_environment(monkeypatch, asked, expected):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    settings = SimpleNamespace(threads=asked, malloc=None)
    threads = provenance.machine(0.0, settings)["threads"]  # type: ignore[arg-type]
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    assert [threads[name] for name in names] == expected
