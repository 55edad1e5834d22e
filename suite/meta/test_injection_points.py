"""Tests that the target of a fault within training is still there when the fault arrives late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Engine
from suite.harness.faults import injection, matrix
from suite.harness.faults.injection_points import INJECTION_POINTS
from suite.harness.metrics import recovery
from suite.harness.scenarios.base import give_time
from suite.meta import fakes

LATE_S = 0.5  # a toy makes all its steps in that time
WITHIN = [
    row
    for row in matrix.ROWS
    if (row.fault, row.target, row.restart) == ("sigkill", "worker", "")
    and INJECTION_POINTS[row.injection_point].hold
]


@pytest.fixture
def engine(fake_engine: Engine, tmp_path: Path) -> Iterator[Engine]:
    made = replace(
        fake_engine,
        directory=tmp_path,
        defaults={"data": fakes.data_file(tmp_path), "seed": 7},
        preload=fakes.IMPORTS,
        zygotes={},
    )
    yield made
    made.stop()


@pytest.mark.parametrize("row", WITHIN, ids=lambda row: row.name)
def test_a_kill_that_comes_late_finds_its_task_there(engine, tmp_path, monkeypatch, row):
    on_time = Cluster.signal

    def late(cluster: Cluster, task: str, signum: int, **named: Any) -> None:
        if named:
            give_time(cluster, LATE_S, lambda _: False)
        on_time(cluster, task, signum, **named)

    monkeypatch.setattr(Cluster, "signal", late)
    (tmp_path / "models").mkdir()
    case = fakes.FakeCase(
        engine, tmp_path / "models", fakes.WORKERS, injection_point=row.injection_point
    )
    run = injection.scene(row)(case).run
    fault = recovery.fault_of(run)
    exited = run.exit_of(fault.task, fault.attempt)
    assert exited
    assert (exited["signal"], exited["ended_by_harness"]) == (9, True)
    hold = INJECTION_POINTS[row.injection_point].hold
    assert hold
    event, step = hold(run.flags)
    events = run.of(event, fault.task, fault.attempt)
    assert all(e.get("global_step", 0) <= step for e in events if step)
    assert not run.of("joined", fault.task, fault.attempt) or event != "started"
