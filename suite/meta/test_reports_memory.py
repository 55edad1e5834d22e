"""Tests of the memory table: a job's tasks share a line, in the order of their numbers."""

from __future__ import annotations

from pathlib import Path

from reports.sections import memory
from suite.meta import made_up_run

TRAINER = "supervisor_parameter_server"


def row(task: str, mib: float, how: str = "", repeat: int = 0) -> dict:
    common = {
        **made_up_run.COMMON,
        "test": made_up_run.test_id("benchmarks", "throughput", "throughput", TRAINER),
        "trainer": TRAINER,
        "backend": "none",
        "collective": "none",
        "workers": 2,
    }
    variant = f"{how}, {task}" if how else task
    number = {"metric": memory.METRIC, "value": mib, "unit": "MiB", "better": "none"}
    return {**common, **number, "variant": variant, "repeat": repeat}


def test_memory_has_line_per_job_and_median_per_task(tmp_path: Path):
    rows = [row("ps/0", 210.0), row("worker/10", 402.0), row("worker/2", 401.0)]
    rows += [row("worker/2", 403.0, repeat=1), row("worker/2", 900.0, repeat=2)]
    rows += [row("worker/0", 300.0, "mlp, batch 32")]
    verdict = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    run = made_up_run.write_numbers(tmp_path / "run", made_up_run.INFO, rows, [verdict])
    shown = [line.cells for line in memory.table(run).rows]
    assert shown == [
        ("", "—", "2", "1", "ps", "210"),
        ("", "—", "2", "3", "worker", "403, 402"),
        ("mlp, batch 32", "—", "2", "1", "worker", "300"),
    ]


def test_memory_is_empty_without_measurements(tmp_path: Path):
    verdict = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    run = made_up_run.write_numbers(tmp_path / "run", made_up_run.INFO, [], [verdict])
    assert not memory.table(run).rows
