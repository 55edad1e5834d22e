"""Strong and weak scaling: speedup and cost of more workers, by size of the model.

Weak: each worker keeps its batch. Strong: the workers share one batch. The base is
`single_process`, alone, without a strategy. On one machine the workers share the processors as
well. To separate this loss from the loss to communication, the same number of processes train side
by side, each in its own cluster. The additional time of a step of the common cluster is the share
of communication.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from reference_trainers import BY_NAME
from suite.benchmarks.scaling_metrics import STEP, communication_share, numbers
from suite.benchmarks.time_budget import passes
from suite.benchmarks.training_runs import Trained, record_memory, side_by_side
from suite.harness.core.errors import HarnessError
from suite.harness.scenarios.base import Launch, complete, work

WORKERS = (1, 2, 4)  # and more where there are more nodes
SAVED_BY = (1, 4)  # workers
MANY = 8
BATCH = 64  # of a worker for weak scaling, of all workers for strong
PASSES = 2  # at most, through everything


@dataclass(frozen=True)
class Size:
    """A model, by its name for --model, with its number of steps and its time budget.

    `budget_s`: of training with it by all numbers of workers, see `passes`; saving has a third.
    """

    model: str
    steps: int
    budget_s: float


SIZES = (
    Size("cnn", 24, 45),
    Size("mlp", 40, 40),
    Size("mlp-10m", 10, 50),
    Size("mlp-50m", 6, 130),
)


# Of a user's program, which has a model of its own.
OWN_MODEL, OWN_STEPS, OWN_S = "its own model", 24, 60.0


@dataclass(frozen=True)
class Setting:
    """The number of workers of one figure, and the batch of each."""

    scaling: str
    workers: int
    batch: int


@dataclass(frozen=True)
class Way:
    """How the processes of a figure train: in one common cluster, or each in its own."""

    name: str
    one_cluster: bool
    trainer: str = ""  # instead of the case's


ALONE = Way("alone", False, "single_process")
APART = Way("apart", False)
TOGETHER = Way("together", True)
ONE = Setting("weak", 1, BATCH)


def weak(nodes: int) -> list[Setting]:
    """Return WORKERS, twice as many up to the number of nodes, and a worker on each node."""
    workers: list[int] = [*WORKERS]
    while workers[-1] < nodes:
        workers.append(min(workers[-1] * 2, nodes))
    return [Setting("weak", count, BATCH) for count in workers]


def weak_and_strong(nodes: int) -> list[Setting]:
    """Return `weak`, and with several workers the same whole batch, if it can be divided."""
    settings = weak(nodes)
    counts = [setting.workers for setting in settings[1:]]
    return settings + [Setting("strong", n, BATCH // n) for n in counts if BATCH % n == 0]


def measure(launch: Launch, size: Size, setting: Setting, way: Way) -> list[Trained]:
    clusters, workers = (1, setting.workers) if way.one_cluster else (setting.workers, 1)
    return side_by_side(
        launch,
        size.steps,
        clusters,
        trainer=BY_NAME.get(way.trainer),
        workers=workers,
        model=size.model,
        batch_size=setting.batch,
    )


@pytest.mark.cases(families=("mwms",), fit=False, flavors="first", flags=("save-every",))
@pytest.mark.timing
@pytest.mark.full
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.model)
def test_saving_by_size(launch: Launch, record, size: Size) -> None:
    """Save a checkpoint after the last step, and restore it in the same cluster after a restart."""
    for repeat in passes(PASSES, size.budget_s / 3):
        for workers in SAVED_BY:
            flags = work(launch, epochs=1, steps_per_epoch=2, model=size.model, save_every=0)
            directory = launch.directory / f"{workers}-{repeat}"
            how = {"flags": flags, "workers": workers, "model_dir": directory}
            saved, restored = complete(launch, **how), complete(launch, **how)
            columns = {"repeat": repeat, "workers": workers, "variant": size.model}
            for name, run, event in (
                ("save", saved, "checkpoint_saved"),
                ("restore", restored, "restored"),
            ):
                seconds = max(e["seconds"] for e in run.of(event))
                record(f"saving_{name}_s", seconds, "s", "lower", **columns)


@pytest.mark.cases(families=("mwms",), fit=False, flavors="first")
@pytest.mark.timing
@pytest.mark.full
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.model)
def test_scaling_over_workers(launch: Launch, record, size: Size) -> None:
    """Assert nothing about speed: on one machine, workers share its processors."""
    scale(launch, record, size, weak_and_strong(launch.engine.node_count), size.budget_s)


@pytest.mark.cases(
    of_user=True,
    distributed=True,
    synchronous=True,
    events=("step",),
    controls=("epochs", "steps-per-epoch", "batch-size"),
)
@pytest.mark.timing
@pytest.mark.full
def test_scaling_of_a_program(launch: Launch, record) -> None:
    """Keep the batch of each worker. The base is the program in a cluster of one worker."""
    own = Size(OWN_MODEL, OWN_STEPS, OWN_S)
    for repeat in passes(PASSES, OWN_S):
        for setting in weak(launch.engine.node_count)[:: -1 if repeat % 2 else 1]:
            found = measure(launch, own, setting, TOGETHER)
            ways = (ALONE, TOGETHER) if setting.workers == 1 else (TOGETHER,)
            for way in ways:
                columns = {**columns_of(own, setting, way), "repeat": repeat}
                columns["collective"] = found[0].run.collective
                for metric, value, unit, better in numbers(found):
                    record(metric, value, unit, better, **columns)


@pytest.mark.cases(families=("mwms",), fit=False, flavors="first")
@pytest.mark.timing
@pytest.mark.long
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.model)
def test_scaling_to_many_workers(launch: Launch, record, size: Size) -> None:
    """Use eight workers, or as many as memory allows.

    One worker is the base, measured in the same run.
    """
    (alone,) = measure(launch, size, ONE, TOGETHER)
    free_mib = psutil.virtual_memory().available / 2**20
    many = min(MANY, int(free_mib / alone.peak_memory_mib))
    if many < 2:
        needed = f"2 workers of {alone.peak_memory_mib:.0f} MiB each"
        raise HarnessError(f"{size.model}: {needed}, and {free_mib:.0f} MiB are free")
    settings = ONE, Setting("weak", many, BATCH), Setting("strong", many, BATCH // many)
    scale(launch, record, size, settings, math.inf)


def scale(launch: Launch, record, size: Size, settings: Sequence[Setting], budget_s: float) -> None:
    """Record all settings; every second pass is reversed, so a machine trend favors no side."""
    for repeat in passes(PASSES, budget_s):
        order = -1 if repeat % 2 else 1
        for setting in settings[::order]:
            step_s, columns = {}, {}
            ways = (ALONE if setting.workers == 1 else APART, TOGETHER)
            for way in ways[::order]:
                found = measure(launch, size, setting, way)
                columns[way] = {
                    **columns_of(size, setting, way),
                    "repeat": repeat,
                    "collective": found[0].run.collective,
                }
                for metric, value, unit, better in numbers(found):
                    record(metric, value, unit, better, **columns[way])
                    step_s.update({way: value} if metric == STEP else {})
                for one in found if way.one_cluster else ():
                    record_memory(record, one, **columns[way])
            if APART in step_s:
                share = communication_share(step_s[APART], step_s[TOGETHER])
                record("scaling_communication_share", share, "1", "lower", **columns[TOGETHER])


def columns_of(size: Size, setting: Setting, way: Way) -> dict[str, Any]:
    """Return the columns that identify a figure in `measurements`."""
    named = (size.model, setting.scaling, f"batch {setting.batch}", way.name)
    number = setting.workers
    return {"workers": number, "replicas": number, "variant": ", ".join(named)}
