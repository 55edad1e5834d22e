"""What scenarios are made of: the work, its data, waiting for what tasks tell, starting and ending.

Sizes are the smallest on which the properties can be told; none is a benchmark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from reference_trainers import BY_NAME, Trainer
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Engine
from suite.harness.core.case import Case
from suite.harness.core.deadlines import wait_until
from suite.harness.core.history import Run

# Three epochs in which a workload of any kind visibly learns, at a rate that makes it sure to.
WORK = {"epochs": 3, "steps-per-epoch": 15, "batch-size": 64, "learning-rate": 0.005}
# In place of a document's model one with the same layers, but narrower: what a strategy does shows
# on it as well, in steps that take a tenth of the time. It learns at other rates, by optimizer.
SMALLER = {"cnn": "small-cnn"}
RATES = {"sgd": 0.05, "momentum": 0.01}
# Of asynchronous workers, whose gradients are of weights that others have changed since. At the
# full rate one run in some hundred got worse again in its third epoch (loss 2.10, 0.93, 1.08).
STALE = 0.5
# Asynchronous workers share a number of steps, and one may be up later than another: enough steps
# for all. (A worker that is not up when the chief has finished would wait for the chief for ever.)
ASYNCHRONOUS_STEPS = 200
TRAIN, TEST = 4096, 256  # examples of the data that are enough for it; fewer start sooner
NEVER = 100_000  # steps per epoch of a run that is to be ended from outside
FEW = 5  # steps that show that a worker trains
# Of an epoch that is timed, where that is the least that is told of: its document's.
EPOCH_STEPS = 20


class Launch(Protocol):
    """What a scenario is given: clusters of one case, and a directory of its own."""

    @property
    def engine(self) -> Engine: ...
    @property
    def case(self) -> Case: ...
    @property
    def directory(self) -> Path: ...
    def __call__(self, trainer: Any = None, **how: Any) -> Cluster: ...
    def outcome(self, scene: Callable[..., Any]) -> Any: ...  # another scenario's, of this case


def work(launch: Launch, trainer: Trainer | None = None, **flags: Any) -> dict[str, Any]:
    """WORK on a part of the data, changed by `flags` (`batch_size=32`), as far as it is taken."""
    trainer = trainer or launch.case.trainer
    given = {k.replace("_", "-"): v for k, v in flags.items()}
    # Both sides of a comparison train as the document of the trainer under test does.
    row = launch.case.trainer
    own = {"optimizer": row.optimizer, "model": model_of(row) or None}
    wanted = {**WORK, "data": part_of_data(launch, TRAIN, TEST), **own, **given}
    if "learning-rate" not in given:
        rate = row.learning_rate or WORK["learning-rate"]
        if row.model in SMALLER:
            rate = RATES[wanted["optimizer"]] * (1 if row.synchronous else STALE)
        wanted["learning-rate"] = rate
    if not trainer.synchronous and "steps-per-epoch" not in given:
        workers = len(launch.engine.topology(trainer).workers)
        shared = WORK["steps-per-epoch"] * workers  # where a coordinator waits until all are up
        wanted["steps-per-epoch"] = shared if coordinated(trainer) else ASYNCHRONOUS_STEPS
    optional = {f for row in BY_NAME.values() for f in row.flags}
    return {k: v for k, v in wanted.items() if k not in optional or k in trainer.flags}


def model_of(row: Trainer) -> str:
    """The name of the model with which this approach is examined, "" where it has its own."""
    return SMALLER.get(row.model, row.model)


def coordinated(trainer: Trainer) -> bool:
    """Whether the workers are servers, for a coordinator that runs the training loop."""
    return "worker" in trainer.services


def part_of_data(launch: Launch, train: int, test: int) -> Path:
    """A data file with the first examples of the session's; its indices are those of the file."""
    whole = Path(launch.engine.defaults["data"])
    path = launch.directory / f"{whole.stem}-{train}-{test}.npz"
    if not path.exists():
        counts = {"train": train, "test": test}
        arrays: dict[str, Any] = {
            key: all_of_it[: counts[key.split("_")[1]]] for key, all_of_it in _read(whole)
        }
        np.savez(path, **arrays)
    return path


@cache
def _read(data: Path) -> tuple[tuple[str, np.ndarray], ...]:
    """Its arrays by name; to unpack them takes as long as to start a cluster."""
    with np.load(data) as file:
        return tuple((key, file[key]) for key in file.files)


def give_time(cluster: Cluster, seconds: float, seen: Callable[[Run], object]) -> None:
    """Wait until something is seen, but not longer; whether it came is for a check to judge."""

    def look() -> object:
        cluster.alive()  # takes in what has been written since
        return seen(cluster.run())

    with contextlib.suppress(TimeoutError):
        wait_until("what may come", look, seconds)


def give_time_to_end(cluster: Cluster, tasks: Iterable[str], seconds: float) -> None:
    """Wait until all of them have ended, but not longer than that and what leaving may take."""
    tasks = set(tasks)
    give_time(cluster, seconds, lambda _: not tasks & set(cluster.alive()))
    give_time(cluster, cluster.deadlines.leave_s, lambda _: not tasks & cluster.leaving())


def quiet_s(launch: Launch) -> float:
    """How long nothing may happen before we believe that it waits: longer than starting takes."""
    return launch.engine.deadlines.detect_s / 20


def endless_work(launch: Launch, epoch_steps: int = FEW, **flags: Any) -> dict[str, Any]:
    """Work that does not end by itself: for scenarios that are over when something was seen.

    `epoch_steps`: of each epoch, where that is the least that is told of.
    """
    if launch.case.trainer.progress == "epoch":
        return work(launch, epochs=NEVER, steps_per_epoch=epoch_steps, **flags)
    return work(launch, epochs=1, steps_per_epoch=NEVER, **flags)


def wait_all_step(
    cluster: Cluster, attempt: int | None = None, after_s: float = 0.0, event: str = ""
) -> None:
    """Until every driver has told a few steps, of that incarnation, after that time.

    `event`: by which it tells of them, default the trainer's own.
    """
    for driver in cluster.drivers:
        cluster.wait_for(
            event or cluster.plan.trainer.progress,
            driver,
            attempt=attempt,
            at_least=FEW,
            where=lambda e: e.time_s > after_s,
        )


def wait_started(cluster: Cluster, tasks: tuple[str, ...] | list[str], attempt: int = 0) -> None:
    for task in tasks:
        cluster.wait_for("started", task, attempt=attempt)


def complete(launch: Launch, trainer: Trainer | None = None, **how: Any) -> Run:
    """Start all, wait for the end."""
    with launch(trainer, **how) as cluster:
        cluster.start()
        return cluster.complete()


def trained(launch: Launch, trainer: Trainer | None = None, **how: Any) -> Run:
    """Start all, wait until every driver has told its weights after the last epoch.

    For scenarios that look at training alone: leaving Keras' fit may take seconds more, in which
    tf.data's tuner sleeps and nothing can wake it.
    """
    steps = how["flags"]["epochs"] * how["flags"]["steps-per-epoch"]
    with launch(trainer, **how) as cluster:
        cluster.start()
        for driver in cluster.drivers:
            cluster.wait_for(
                "weights",
                driver,
                where=lambda e: e["when"] == "epoch" and e["global_step"] >= steps,
                within_s=launch.engine.deadlines.run_s,
            )
        return cluster.run()


def single(trainer: Trainer) -> Trainer:
    """One process on the same model: `single_process`, where that has it.

    What brings a model of its own is compared with itself in a cluster of one.
    """
    if trainer.model and trainer.name in BY_NAME:
        return BY_NAME["single_process"]
    alone = {"jobs": (), "role": "none", "backends": ("none",), "devices": 1}
    flags = tuple(flag for flag in trainer.flags if flag != "backend")
    return replace(trainer, flags=flags, **alone)
