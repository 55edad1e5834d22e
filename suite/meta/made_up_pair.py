"""Made-up runs to compare: step times of a few processes, and verdicts, as a test needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reports.compare import run_groups
from reports.rundir import frame
from suite.meta import made_up_run
from suite.meta.made_up_run import INFO, MULTI, SINGLE, test_id, verdict

STEP_S = {"p50": 0.1, "p90": 0.12}


def times(level: float = 1.0, count: int = 6, seed: int = 1, spread: float = 0.001) -> list[float]:
    """Return one value for each process, around `level`."""
    noise = np.random.default_rng(seed).normal(0, spread, count)
    return [float(value) for value in level * np.exp(noise - noise.mean())]


def step_times(values: Mapping[str, Sequence[float]], **columns: Any) -> Iterator[dict[str, Any]]:
    """Yield rows of `step_time_NAME_s`, one value for each name and process.

    `columns` replace the default columns.
    """
    keras = columns.get("keras", made_up_run.COMMON["keras"])
    case = f"{MULTI}-ring-{keras.split()[0]}"
    for name, listed in values.items():
        for repeat, value in enumerate(listed):
            yield {
                **made_up_run.COMMON,
                "test": test_id("benchmarks", "throughput", "throughput", case),
                "trainer": MULTI,
                "backend": "ring",
                "collective": "ring",
                "workers": 2,
                "replicas": 2,
                "repeat": repeat,
                "metric": f"step_time_{name}_s",
                "value": value,
                "unit": "s",
                "better": "lower",
                **columns,
            }


def verdict_rows(**given: str) -> list[dict[str, Any]]:
    """Return verdicts of one trainer, given by test name."""
    return [verdict(SINGLE, "export", name, word) for name, word in given.items()]


def side(
    name: str,
    rows: Iterable[Mapping[str, Any]] = (),
    verdict_dicts: Iterable[Mapping[str, Any]] = (),
    **info: Any,
) -> run_groups.Side:
    """Return one run as a side of a comparison, without files."""
    return run_groups.combine([run(name, rows, verdict_dicts, **info)])


def run(
    name: str,
    rows: Iterable[Mapping[str, Any]] = (),
    verdict_dicts: Iterable[Mapping[str, Any]] = (),
    **info: Any,
) -> frame.RunFrames:
    """Return one run as if it were loaded from files."""
    numbers = [frame.measurement_row(**{"run_id": name, **row}) for row in rows]
    verdicts = [frame.verdict_row(**{"run_id": name, **row}) for row in verdict_dicts]
    tables = frame.table(frame.MEASUREMENTS, numbers), frame.table(frame.VERDICTS, verdicts)
    content = {**INFO, "run_id": name, **info}
    return frame.RunFrames(Path(name), content, *map(frame.data_frame, tables))


def write(
    directory: Path,
    rows: Iterable[Mapping[str, Any]] | None = None,
    verdict_dicts: Iterable[Mapping[str, Any]] | None = None,
    **info: Any,
) -> Path:
    """Write a run directory, by default with two series of step times and two passing tests."""
    rows = list(rows) if rows is not None else list(step_times(usual()))
    verdict_dicts = (
        list(verdict_dicts)
        if verdict_dicts is not None
        else verdict_rows(loads="passed", serves="passed")
    )
    made_up_run.write_numbers(
        directory, {**INFO, "run_id": directory.name, "exit_code": 0, **info}, rows, verdict_dicts
    )
    return directory


def usual(**levels: float) -> dict[str, list[float]]:
    """Return step times by name; `levels` scales those that it names."""
    return {
        name: times(level * levels.get(name, 1.0), seed=number)
        for number, (name, level) in enumerate(STEP_S.items())
    }
