"""A small made-up run: every kind of verdict, text that needs escaping, few numbers.

It gives the reports an input that they read in seconds, with the same values every time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reports.render import pages
from reports.rundir import frame, writer

RUN_ID = "2026-01-02T030405-1"
TIME = "2026-01-02T03:04:05Z"
MULTI, SINGLE, SUPERVISOR = (
    "keras_multi_worker_mirrored",
    "single_process",
    "supervisor_parameter_server",
)
THREAD = "https://github.com/keras-team/keras/issues/20585"
NASTY = "got <b>PerReplica</b> & $x$ | `tick` [ring] \x1b[31mred\x1b[0m *star*\nsecond line"
FAULTED = "worker-loss"  # the cluster whose task was killed
DIAGNOSIS = (
    "task worker/1: exit -9 <killed>\nlast event: step 7\n</details><script>alert(1)</script>"
)
VERSIONS = {"tensorflow": "2.21.0", "python": "3.11.9", "host": "host-1", "time": TIME}
COMMON = {**VERSIONS, "keras": "tf_keras 2.21.0"}

INFO: Mapping[str, Any] = {
    "run_id": RUN_ID,
    "command": "pytest suite/ --keras tf_keras --data 'my <data>.npz'",
    "start": TIME,
    "end": "2026-01-02T03:08:15Z",
    "seed": 4711,
    "versions": {
        "tensorflow": "2.21.0",
        "keras": {"tf_keras": "tf_keras 2.21.0", "keras3": "3.15.1"},
        "python": "3.11.9",
        "pytest": "9.0.1",
        "suite": "0.1.0+0123456789ab.dirty",
    },
    "machine": {
        "host": "host-1",
        "cpu": "Made-up CPU @ 2 GHz",
        "cores": 2,
        "memory_gib": 23.5,
        "kernel": "6.1.0",
        "load_1m": 0.4,
    },
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": True},
    "network": {"kind": "namespace", "reason": ""},
    "spawn": "fork",
    "data": {
        "name": "MNIST",
        "path_name": "mnist.npz",
        "train": 60000,
        "test": 10000,
        "sha256": "ab" * 32,
    },
    "deadline_scale": 1.0,
    "xdist_workers": 0,
    "leaks": [],
    "exit_code": 1,
}


def test_id(folder: str, prop: str, name: str, case: str) -> str:
    return f"suite/{folder}/test_{prop}.py::test_{name}[{case}]"


def verdict(
    trainer: str, prop: str, name: str, given: str = "passed", *, folder="conformance", **columns
) -> dict[str, Any]:
    """Return one verdict row of a test of that name; `columns` replace the default columns."""
    backend = "ring" if trainer == MULTI else "none"
    keras = columns.get("keras", "none" if trainer == SUPERVISOR else COMMON["keras"])
    test = test_id(folder, prop, name, f"{trainer}-{backend}-{keras.split()[0]}")
    row = {
        "test": test,
        "trainer": trainer,
        "backend": backend,
        "workers": 1 if trainer == SINGLE else 2,
        "claims": [f"made-up/{name.replace('_', '-')}", f"cluster/{prop}"],
        "verdict": given,
        "duration_s": 1.25,
        "reproduce": f"pytest '{test}' --seed 4711",
    }
    return {**COMMON, **row, "keras": keras, **columns}


def verdicts() -> list[dict[str, Any]]:
    """Return verdicts of all six kinds, over three approaches and two Keras flavors."""
    keras3 = {"keras": "keras3 3.15.1", "url": THREAD, "reason": f"fit fails: {NASTY}"}
    rows = [
        verdict(trainer, prop, name)
        for trainer in (SINGLE, MULTI, SUPERVISOR)
        for prop, name in (
            ("convergence", "loss_falls"),
            ("convergence", "accuracy_rises"),
            ("checkpoint", "latest_restores"),
            ("published_figures", "accuracy_is_in_range"),
        )
    ]
    rows += [
        verdict(MULTI, "convergence", "loss_falls", "known_deviation", **keras3),
        verdict(MULTI, "checkpoint", "latest_restores", "known_deviation", **keras3),
        verdict(MULTI, "agreement", "workers_agree", "failed", reason=NASTY, diagnosis=DIAGNOSIS),
        verdict(SUPERVISOR, "stop", "stops", "harness_error", reason="no space left for <logs>"),
        verdict(SINGLE, "export", "loads", "unexpected_pass", reason="expected to fail, passed"),
        verdict(
            MULTI,
            "throughput",
            "nccl_reduces",
            "unsupported",
            folder="benchmarks",
            backend="nccl",
            reason="NCCL needs a GPU on every worker",
            url="https://github.com/tensorflow/tensorflow/issues/60847",
        ),
        verdict(
            SUPERVISOR,
            "fault_matrix",
            "peers_continue",
            folder="faults",
            fault="sigkill",
            variant="worker, mid-epoch",
            events=[FAULTED],
        ),
    ]
    return rows


def measurements() -> list[dict[str, Any]]:
    """Return throughput (three processes each), start-up (eight clusters each) and one other."""
    return [*_throughput(), *_startup(), *_others()]


def _throughput() -> Iterator[dict[str, Any]]:
    rates = {(SINGLE, "none", "none"): 120.0, (MULTI, "auto", "ring"): 12.0}
    rates |= {(MULTI, "nccl", "ring"): 11.5, (SUPERVISOR, "none", "none"): 240.0}
    for (trainer, backend, collective), rate in rates.items():
        keras = "none" if trainer == SUPERVISOR else COMMON["keras"]
        workers = 1 if trainer == SINGLE else 2
        for repeat in range(3):
            steps = rate * (1 + 0.01 * (repeat - 1))
            for metric, value, unit, better in (
                ("throughput_steps_per_s", steps, "steps/s", "higher"),
                ("throughput_examples_per_s", steps * 64 * workers, "examples/s", "higher"),
                ("step_time_p50_s", 1 / steps, "s", "lower"),
                ("step_time_p90_s", 1.2 / steps, "s", "lower"),
                ("step_time_p99_s", 1.5 / steps, "s", "lower"),
            ):
                yield {
                    **COMMON,
                    "keras": keras,
                    "test": test_id("benchmarks", "throughput", "throughput", trainer),
                    "trainer": trainer,
                    "backend": backend,
                    "collective": collective,
                    "workers": workers,
                    "replicas": workers,
                    "repeat": repeat,
                    "metric": metric,
                    "value": value,
                    "unit": unit,
                    "better": better,
                }


def _startup() -> Iterator[dict[str, Any]]:
    common = {**COMMON, "test": test_id("benchmarks", "startup", "first_all_reduce", "2")}
    first = {"fork": 0.4, "multi_process_runner": 1.0, "cold": 5.0}
    for variant, seconds in first.items():
        for repeat in range(8):
            yield {
                **common,
                "workers": 2,
                "variant": variant,
                "repeat": repeat,
                "metric": "cluster_first_all_reduce_s",
                "value": seconds * (1 + 0.02 * repeat),
                "unit": "s",
                "better": "lower",
            }
    for end, value in {"": 12.5, "_low": 11.9, "_high": 13.1}.items():
        yield {
            **common,
            "workers": 2,
            "variant": "cold / fork",
            "metric": f"cluster_first_all_reduce_ratio{end}",
            "value": value,
            "unit": "1",
            "better": "none",
        }
    yield {**common, "metric": "zygote_import_s", "value": 2.4, "unit": "s", "better": "lower"}
    yield {
        **common,
        "workers": 32,
        "metric": "worker_memory_pss_mib",
        "value": 94.0,
        "unit": "MiB",
        "better": "lower",
    }


def _others() -> Iterator[dict[str, Any]]:
    yield {
        **COMMON,
        "test": test_id("faults", "worker_loss", "peers_fail", MULTI),
        "trainer": MULTI,
        "backend": "ring",
        "collective": "ring",
        "workers": 2,
        "fault": "sigkill",
        "metric": "peer_loss_detected_s",
        "value": 0.125,
        "unit": "s",
        "better": "lower",
    }


def write_events(run_dir: Path) -> None:
    """Write event files of a healthy cluster of two workers and of one that lost a worker."""
    for cluster, steps in (("healthy-ring", 12), (FAULTED, 4)):
        for index in range(2):
            lines = list(_events(f"worker/{index}", steps))
            write_lines(run_dir / "events" / cluster / f"worker-{index}.jsonl", lines)
    write_lines(run_dir / "events" / FAULTED / "harness.jsonl", list(_harness_events()))


def write_lines(path: Path, events: Sequence[Mapping[str, Any]]) -> None:
    """Write an event file that ends in a partial line, as of a task killed while it wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "st')


def _harness_events() -> Iterator[dict[str, Any]]:
    yield event("spawned", -1.0, "worker/0", pid=1)
    yield event("spawned", -1.0, "worker/1", pid=2)
    yield event("fault_started", 9.0, "worker/1", fault="sigkill")
    yield event("exited", 9.1, "worker/1", code=None, signal=9, ended_by_harness=True)
    yield event("exited", 9.5, "worker/0", code=1, signal=None, ended_by_harness=False)


def _events(task: str, steps: int) -> Iterator[dict[str, Any]]:
    yield event("started", 0.0, task, trainer=MULTI, keras=COMMON["keras"], seed=1, pid=1)
    yield event("joined", 0.5, task, workers=2, backend="ring", chief=task == "worker/0")
    for step in range(1, steps + 1):
        loss = 2.3 / step**0.5 + (0.1 if task == "worker/0" else -0.1)
        yield event("step", step, task, step=step, global_step=step, loss=loss, examples=64)
        if step % 4 == 0:
            metrics = {"loss": 2.3 / step**0.5, "accuracy": 1 - 1 / step}
            epoch = {"epoch": step // 4, "steps": 4, "metrics": metrics, "global_step": step}
            yield event("epoch", step + 0.5, task, **epoch)
    yield event("finished", steps + 1.0, task, global_step=steps, steps=steps)


def event(name: str, time_s: float, task: str, **data: Any) -> dict[str, Any]:
    return {"event": name, "time_s": time_s, "task": task, "attempt": 0, **data}


def write(run_dir: Path, **info: Any) -> Path:
    """Write the run with `reports.rundir.writer`; `info` replaces run.json's default values."""
    write_events(run_dir)
    run = writer.write(run_dir, {**INFO, **info}, measurements(), verdicts())
    assert pages.write_pages(run) == []
    return run_dir


def write_numbers(*given: Any) -> frame.RunFrames:
    """Write a run without its pages, which take most of the time."""
    return writer.write(*given)


def write_small(run_dir: Path, **info: Any) -> Path:
    """Write a passing run of one test and one number."""
    verdict_row = verdict(SINGLE, "export", "loads")
    write_numbers(run_dir, {**INFO, "exit_code": 0, **info}, [*_others()], [verdict_row])
    return run_dir


def measured(rows: Sequence[Mapping[str, Any]], **info: Any) -> frame.RunFrames:
    """Return a run with these numbers and no verdicts, without writing it."""
    facts = {**INFO, "exit_code": 0, **info}
    of_run = [frame.measurement_row(**{"run_id": facts["run_id"], **row}) for row in _timed(rows)]
    tables = frame.table(frame.MEASUREMENTS, of_run), frame.table(frame.VERDICTS, [])
    return frame.RunFrames(Path(facts["run_id"]), facts, *map(frame.data_frame, tables))


def write_measured(run_dir: Path, rows: Sequence[Mapping[str, Any]], **info: Any) -> Path:
    """Write a passing run of one test with these numbers."""
    facts = {**INFO, "exit_code": 0, **info}
    write_numbers(run_dir, facts, _timed(rows), [verdict(SINGLE, "export", "loads")])
    return run_dir


def _timed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    test = test_id("benchmarks", "saving", "saving", SINGLE)
    common = {**COMMON, "test": test, "trainer": SINGLE, "unit": "s", "better": "lower"}
    return [{**common, **row} for row in rows]


@functools.cache
def _written(directory: Path) -> Path:
    return write(directory / "made-up-run")


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run's directory, which is written once. A test that changes it must copy it."""
    return _written(tmp_path_factory.getbasetemp())
