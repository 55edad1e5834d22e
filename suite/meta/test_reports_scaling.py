"""Tests of the scaling report: speed-up over one process, efficiency, communication share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.charts import section_charts
from reports.rundir import frame
from reports.sections import scaling
from suite.meta import made_up_run

LOOP = "custom_loop_multi_worker_mirrored"
RATES = {(1, "alone"): 1000.0, (1, "together"): 900.0, (2, "apart"): 1900.0}
RATES[2, "together"] = 1500.0


def rows() -> Iterator[dict[str, Any]]:
    for (workers, way), rate in RATES.items():
        common = {
            **made_up_run.COMMON,
            "test": made_up_run.test_id("benchmarks", "scaling", "scaling_over_workers", LOOP),
            "trainer": LOOP,
            "backend": "auto",
            "collective": "ring" if (workers, way) == (2, "together") else "none",
            "workers": workers,
            "variant": f"cnn, weak, batch 64, {way}",
        }
        values = {"examples_per_s": rate, "step_s": 64 * workers / rate, "cpu_s": 3.0}
        values |= {"peak_memory_mib": 512.0, "formation_s": 0.2, "first_step_s": 2.5}
        values |= {"tracing_s": 2.4, "step_p99_s": 2 * values["step_s"]}
        values |= {"communication_share": 0.25} if (workers, way) == (2, "together") else {}
        for repeat in (0, 1):
            for metric, value in values.items():
                yield {
                    **common,
                    "repeat": repeat,
                    "metric": f"scaling_{metric}",
                    "value": value,
                    "unit": "1",
                }


@pytest.fixture
def run(tmp_path: Path) -> frame.RunFrames:
    verdict = made_up_run.verdict(made_up_run.SINGLE, "export", "loads")
    return made_up_run.write_numbers(tmp_path / "run", made_up_run.INFO, list(rows()), [verdict])


def test_speedup_is_relative_to_single_process(run: frame.RunFrames):
    one, two = scaling.table(run).rows
    assert one.group == two.group == f"{LOOP} · tf_keras 2.21.0, auto → ring"
    assert one.cells[:4] == ("cnn", "weak", "64", "1")
    assert one.cells[8:11] == ("0.90 ±0.00", "90 %", "—")
    assert two.cells[5:11] == ("85.3", "171", "1,500.0 ±0.0", "1.50 ±0.00", "75 %", "25.00 ±0.00")


def test_speedup_is_missing_without_single_process(run: frame.RunFrames):
    numbers = run.measurements
    rest = numbers.loc[~numbers["variant"].str.endswith("alone")]
    assert {row["speed_up"] for row in scaling.summarize(rest)} == {None}


def test_scaling_has_chart_per_approach(run: frame.RunFrames):
    ((name, drawn),) = section_charts.scaling_chart(run)
    assert name == f"{LOOP}, requested auto, actual ring"
    assert drawn.count("<svg") == 1
