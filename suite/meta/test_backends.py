"""Tests that the actual backend is read from TensorFlow's logs, and that GPUs are shared out.

The tests replace `nvidia-smi` and need no GPU.
"""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reference_trainers import BY_NAME
from suite.benchmarks import collective_runs, training_runs
from suite.harness.cluster import diagnostics
from suite.harness.cluster.launcher import MALLOC, THREADS, Engine, to_inherit
from suite.harness.core import backends
from suite.harness.core.errors import BadInput, CheckFailed, Unsupported
from suite.harness.core.history import Run
from suite.harness.environment.gpus import assign_gpus, discover_gpus, enough
from suite.meta.calls import calls

RING = "I0000 collective_param_resolver_local.cc:703] AssignCollectiveType RingReduce\n"
GATHER = "I0000 collective_param_resolver_local.cc:703] AssignCollectiveType RingGather\n"
NCCL = "I0000 collective_param_resolver_local.cc:703] AssignCollectiveType NcclReduce\n"
BROADCAST = "I0000 x.cc:703] AssignCollectiveType HierarchicalTreeBroadcast\n"
ASKED = "WARNING:tensorflow:Enabled NCCL communication but no GPUs detected/specified.\n"
GPUS = ("GPU-11111111-aaaa", "GPU-22222222-bbbb", "GPU-33333333-cccc")
MIGS = ("MIG-44444444-dddd", "MIG-55555555-eeee")
A100, T4 = "NVIDIA A100-SXM4-40GB", "Tesla T4"
WORKERS = ("worker/0", "worker/1")


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([RING + RING, RING], "ring"),
        ([NCCL, NCCL], "nccl"),
        ([ASKED + RING, ASKED + RING], "ring"),  # the request alone proves nothing
        ([GATHER + BROADCAST + NCCL], "nccl"),  # only the reduction of gradients counts
        ([GATHER], "none"),
        ([], "none"),
        ([RING, NCCL], "nccl+ring"),  # the workers differ
    ],
)
def test_actual_backend_is_what_the_log_names(tmp_path: Path, logs, expected):
    assert run_with_logs(tmp_path, logs).collective == expected


def test_diagnosis_shows_what_a_task_printed_below_verbose_lines(tmp_path: Path):
    shown = diagnostics.describe(run_with_logs(tmp_path, ["epoch 1\n" + 60 * RING, NCCL]))
    assert "epoch 1" in shown.splitlines()
    assert "AssignCollectiveType" not in shown


def run_with_logs(directory: Path, texts: Sequence[str]) -> Run:
    """Return a run whose workers have printed these texts."""
    directory.mkdir(exist_ok=True)
    logs = {(w, 0): directory / w.replace("/", "-") for w in WORKERS[: len(texts)]}
    for path, text in zip(logs.values(), texts, strict=True):
        path.write_text(text)
    trainer = BY_NAME["keras_multi_worker_mirrored"]
    return Run(trainer, WORKERS, WORKERS, "nccl", "none", (), directory=directory, logs=logs)


def test_collectives_that_differ_between_clusters_fail_the_check(tmp_path: Path):
    first, second, third = (
        training_runs.Trained(run_with_logs(tmp_path / name, [text, text]), 0.0, {})
        for name, text in {"001-a": RING, "002-a": RING, "003-a": NCCL}.items()
    )
    assert training_runs.common_collective([first, second]) == "ring"
    with pytest.raises(CheckFailed, match=r"\(003-a\) has 'nccl', number 1 \(001-a\) has 'ring'"):
        training_runs.common_collective([first, second, third])


def test_collective_reads_each_log_once_until_it_grows(tmp_path: Path):
    run = run_with_logs(tmp_path, [ASKED + RING, ASKED + RING])
    with calls() as made:
        assert {run.collective for _ in range(5)} == {"ring"}
    assert made["open"] == len(WORKERS)
    with run.logs["worker/1", 0].open("a") as file:
        file.write(NCCL)
    assert run.collective == "nccl+ring"


@pytest.mark.parametrize(
    ("backend", "collective", "gpus", "reason"),
    [
        (
            "nccl",
            "ring",
            False,
            "no GPU for each worker: nccl was requested, the run was reduced by ring",
        ),
        ("nccl", "ring", True, "TensorFlow chose otherwise: nccl was requested"),
        ("ring", "nccl", True, "TensorFlow chose otherwise: ring was requested"),
        ("nccl", "nccl", True, ""),
        ("ring", "ring", False, ""),
        ("auto", "ring", False, ""),  # AUTO accepts any backend
        ("auto", "nccl", True, ""),
        ("none", "none", False, ""),
    ],
)
def test_unmet_says_why_the_request_was_not_followed(backend, collective, gpus, reason):
    found = backends.unmet(backend, collective, gpus)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return `nvidia_smi(script)`, which replaces the driver's program by a shell script."""

    def install(script: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def listing(*models: str) -> str:
    """Return a script that prints the list of `nvidia-smi -L` for these models.

    The last GPU has MIG instances.
    """
    lines = [f"GPU {i}: {model} (UUID: {GPUS[i]})" for i, model in enumerate(models)]
    lines += [f"  MIG 3g.20gb     Device  {i}: (UUID: {u})" for i, u in enumerate(MIGS)]
    return '[ "$*" = -L ] && cat <<END\n' + "\n".join(lines) + "\nEND"


def discover(visible: str | None = None, order: str | None = None) -> tuple[str, ...]:
    given = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    return discover_gpus({k: v for k, v in given.items() if v is not None})


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, GPUS),
        ("0,2", (GPUS[0], GPUS[2])),
        ("2,1", (GPUS[2], GPUS[1])),  # CUDA numbers GPUs as the list does
        ("1", (GPUS[1],)),
        (GPUS[1], (GPUS[1],)),
        ("GPU-2,GPU-11", (GPUS[1], GPUS[0])),
        ("GPU-3,GPU,GPU-1", (GPUS[2],)),  # the second entry is ambiguous
        (" 0 , 1 ", GPUS[:2]),
        ("0,2,-1,1", (GPUS[0], GPUS[2])),
        ("0,7,1", GPUS[:1]),
        ("0,,1", GPUS[:1]),
        ("0,1,GPU-1,2", GPUS[:2]),  # the third entry repeats the first
        (",".join(MIGS), MIGS),
        ("MIG-5", MIGS[1:]),
        ("", ()),
        ("-1", ()),
        ("7", ()),
        ("NoDevFiles", ()),
    ],
)
def test_visible_gpus_follow_the_rules_of_cuda(nvidia_smi, visible, expected):
    nvidia_smi(listing(A100, A100, A100))
    assert discover(visible) == expected


def test_index_of_unlike_gpus_needs_pci_order(nvidia_smi):
    nvidia_smi(listing(T4, A100))
    assert discover("0", "PCI_BUS_ID") == GPUS[:1]
    for order in (None, "FASTEST_FIRST"):
        with pytest.raises(BadInput, match=r"^CUDA_VISIBLE_DEVICES=1: .*PCI_BUS_ID.* UUIDs"):
            discover("1", order)
        assert discover("-1", order) == ()
        assert discover("GPU-22", order) == GPUS[1:2]
        assert discover(None, order) == GPUS[:2]


@pytest.mark.parametrize(
    "script",
    [
        "echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9",
        "echo 'No devices were found'",
        "exit 0",
        "kill -9 $$",
    ],
)
def test_a_driver_that_does_not_answer_is_no_gpu(nvidia_smi, script):
    nvidia_smi(script)
    assert discover("0") == ()


def test_no_driver_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert discover("0") == ()


def test_each_worker_gets_a_gpu_of_its_own():
    assert assign_gpus(GPUS, WORKERS) == dict(zip(WORKERS, GPUS, strict=False))


def test_a_worker_of_several_replicas_gets_a_gpu_for_each():
    pair = f"{GPUS[0]},{GPUS[1]}"
    assert assign_gpus(GPUS, WORKERS[:1], each=2) == {"worker/0": pair}
    assert assign_gpus(GPUS, WORKERS, each=2) == {"worker/0": "-1", "worker/1": "-1"}


def test_no_worker_gets_a_gpu_where_there_are_too_few():
    assert assign_gpus(GPUS[:1], WORKERS) == {"worker/0": "-1", "worker/1": "-1"}
    assert assign_gpus((), WORKERS) == {"worker/0": "-1", "worker/1": "-1"}


@pytest.mark.parametrize(
    ("name", "gpus", "seen"),
    [
        ("keras_multi_worker_mirrored", GPUS, {"worker/0": GPUS[0], "worker/1": GPUS[1]}),
        ("keras_multi_worker_mirrored", GPUS[:1], {"worker/0": "-1", "worker/1": "-1"}),
        ("single_process", GPUS, {"worker/0": GPUS[0]}),
        ("keras_mirrored", GPUS, {"worker/0": f"{GPUS[0]},{GPUS[1]}"}),
        ("keras_mirrored", GPUS[:1], {"worker/0": "-1"}),
    ],
)
def test_tasks_see_the_gpu_that_they_were_assigned(fake_engine: Engine, name, gpus, seen):
    engine = replace(fake_engine, gpus=gpus, zygotes={})
    cluster = engine.launch(BY_NAME[name], backend="nccl", keras="none")
    cluster.release()
    variables = {task: cluster.plan.environment(task, 0) for task in cluster.tasks}
    assert {t: v["CUDA_VISIBLE_DEVICES"] for t, v in variables.items()} == seen


@pytest.mark.parametrize(
    ("backend", "gpus", "clusters"),
    [
        ("nccl", GPUS[:2], [2]),
        ("nccl", (), [2, 4]),  # the test itself reports that it is not NCCL
        ("ring", GPUS[:1], [2, 4]),
    ],
)
def test_nccl_is_timed_where_each_worker_has_a_gpu_or_none_has(backend, gpus, clusters):
    assert collective_runs.sizes_of_clusters(timing(backend, gpus)) == clusters


def test_one_gpu_is_too_few_for_any_cluster():
    with pytest.raises(Unsupported, match="no GPU for each of 2 workers: there is 1"):
        collective_runs.sizes_of_clusters(timing("ring", GPUS[:1]), "nccl")


def timing(backend: str, gpus: Sequence[str]) -> Any:
    case = SimpleNamespace(backend=backend)
    engine = SimpleNamespace(gpu_count=len(gpus), has_gpus=partial(enough, gpus))
    return SimpleNamespace(engine=engine, case=case)


def test_tensorflow_logs_its_backend_whatever_was_inherited(
    fake_engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("TF_CPP_VMODULE", "")
    variables = replace(fake_engine, inherited=to_inherit()).environment("none")
    assert variables["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert variables["TF_CPP_VMODULE"] == "collective_param_resolver_local=1"


def test_tensorflow_s_pools_have_as_many_threads_as_asked_for(
    fake_engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(THREADS[0], "7")
    monkeypatch.delenv(THREADS[1], raising=False)
    begun = replace(fake_engine, inherited=to_inherit())
    variables = replace(begun, threads=3).environment("none")
    assert [variables[name] for name in THREADS] == ["3", "3"]
    variables = begun.environment("none")
    assert [variables.get(name) for name in THREADS] == ["7", None]


# Allocate 80 MiB in pieces, repeatedly, in a thread: more than a thread's heap holds. A single
# thread allocates everything, because join() does not wait for the system's thread: a second
# thread might start before the first has returned its arena, and fault in its own memory.
ALLOCATING = """
import resource, threading
def faults():
    for rounds in (3, 10):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(rounds):
            [bytearray(4 * 2**20) for _ in range(20)]
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
found = []
thread = threading.Thread(target=faults)
thread.start()
thread.join()
print(found[-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is set so")
def test_memory_that_is_kept_is_not_asked_for_again(fake_engine: Engine):
    faults = {}
    for how in MALLOC:
        env = replace(fake_engine, malloc=how).environment("none")
        command = [sys.executable, "-c", ALLOCATING]
        faults[how] = int(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    assert faults["keep"] < faults["default"] / 10, faults
