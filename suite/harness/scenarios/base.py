"""Build scenarios: work and data, waits for events, start and end of a cluster.

Sizes are the smallest that show the properties. None is a benchmark.
"""

from __future__ import annotations

import contextlib
import time
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
from suite.harness.core.errors import DeadlineExceeded, NotExamined, TrainerFailed
from suite.harness.core.history import Event, Run
from suite.harness.core.paths import ROOT

# Three epochs, at a rate at which every kind of workload reliably learns.
WORK = {"epochs": 3, "steps-per-epoch": 15, "batch-size": 64, "learning-rate": 0.005}
# Each document's model is replaced by a narrower one with the same layers. It shows the effect of a
# strategy as well, in steps that take a tenth of the time. It learns at other rates, by optimizer.
SMALLER = {"cnn": "small-cnn"}
RATES = {"sgd": 0.05, "momentum": 0.01}
# Factor for asynchronous workers, whose gradients are of weights that others have changed since. At
# the full rate about one run in a hundred got worse in its third epoch (loss 2.10, 0.93, 1.08).
STALE = 0.5
# Asynchronous workers share a number of steps, and one may start later than another: enough steps
# for all. (A worker that starts after the chief has finished would wait for the chief forever.)
ASYNCHRONOUS_STEPS = 200
# Examples that suffice; fewer load faster. No batch size divides the number of tests.
TRAIN, TEST = 4096, 250
NEVER = 100_000  # steps per epoch of a run that the harness ends
FEW = 5  # this many steps show that a worker trains
# Steps of a timed epoch, where the program reports epochs only: the number in its document.
EPOCH_STEPS = 20
PROGRAMS = ROOT / "suite" / "programs"


class Launch(Protocol):
    """Start clusters of one case for a scenario, which has its own directory."""

    @property
    def engine(self) -> Engine: ...
    @property
    def case(self) -> Case: ...
    @property
    def directory(self) -> Path: ...
    def __call__(self, trainer: Any = None, **how: Any) -> Cluster: ...
    def outcome(self, scene: Callable[..., Any]) -> Any: ...  # of another scenario, for this case


def work(launch: Launch, trainer: Trainer | None = None, **flags: Any) -> dict[str, Any]:
    """Return WORK on a part of the data, updated by `flags` (`batch_size=32`).

    Leave out optional flags that the trainer does not take.
    """
    trainer = trainer or launch.case.trainer
    given = {k.replace("_", "-"): v for k, v in flags.items()}
    # Both sides of a comparison use the optimizer and the model of the trainer under test.
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
        shared = WORK["steps-per-epoch"] * workers  # a coordinator waits until all workers are up
        wanted["steps-per-epoch"] = shared if coordinated(trainer) else ASYNCHRONOUS_STEPS
    if trainer.of_user:
        return {k: v for k, v in wanted.items() if k in trainer.flags}
    optional = {f for row in BY_NAME.values() for f in row.flags}
    return {k: v for k, v in wanted.items() if k not in optional or k in trainer.flags}


def model_of(row: Trainer) -> str:
    """Return the name of the model under test, "" if the approach brings its own."""
    return SMALLER.get(row.model, row.model)


def coordinated(trainer: Trainer) -> bool:
    """Return True if the workers are servers of a coordinator that runs the training loop."""
    return "worker" in trainer.services


def part_of_data(launch: Launch, train: int, test: int) -> Path:
    """Write and return a file of the first examples of the session's data; indices are kept."""
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
    """Return the arrays of a file by name. Unpacking takes as long as starting a cluster."""
    with np.load(data) as file:
        return tuple((key, file[key]) for key in file.files)


def give_time(cluster: Cluster, seconds: float, seen: Callable[[Run], object]) -> None:
    """Wait until `seen` holds, at most `seconds`. A check judges whether it came to hold."""

    def look() -> object:
        cluster.alive()  # reads the events written since
        return seen(cluster.run())

    with contextlib.suppress(TimeoutError):
        wait_until("what may come", look, seconds)


def give_time_to_end(cluster: Cluster, tasks: Iterable[str], seconds: float) -> None:
    """Wait at most `seconds` until all tasks have exited, plus the time that leaving may take."""
    tasks = set(tasks)
    give_time(cluster, seconds, lambda _: not tasks & set(cluster.alive()))
    give_time(cluster, cluster.deadlines.leave_s, lambda _: not tasks & cluster.leaving())


def quiet_s(launch: Launch) -> float:
    """Return how long a task must be silent to count as waiting: longer than startup takes."""
    return launch.engine.deadlines.detect_s / 20


def endless_work(launch: Launch, epoch_steps: int = FEW, **flags: Any) -> dict[str, Any]:
    """Return work that does not end by itself, for scenarios that the harness ends.

    `epoch_steps`: steps of each epoch, where the program reports epochs only, and of a user's
    program, which may save, or report, at the end of an epoch only.
    """
    row = launch.case.trainer
    by_epochs = row.of_user and ("epochs" in row.flags or "steps-per-epoch" not in row.flags)
    if by_epochs or row.progress == "epoch":
        return work(launch, epochs=NEVER, steps_per_epoch=epoch_steps, **flags)
    return work(launch, epochs=1, steps_per_epoch=NEVER, **flags)


def wait_all_step(
    cluster: Cluster, attempt: int | None = None, after_s: float = 0.0, event: str = ""
) -> None:
    """Wait until every driver has reported a few steps, of that attempt, after that time.

    `event`: the event that reports them, by default the trainer's own.
    """
    for driver in cluster.drivers:
        wait_training(
            cluster,
            event or cluster.plan.trainer.progress,
            driver,
            attempt=attempt,
            at_least=FEW,
            where=lambda e: e.time_s > after_s,
        )


def wait_training(cluster: Cluster, event: str, task: str | None = None, **how: Any) -> Event:
    """Wait for an event of training. Raise NotExamined if a user's program has ended well before.

    `task`: of which task; default: of any. `how`: as for `Cluster.wait_for`. How long the first
    step, or an epoch, of a user's program may take is not known, so it has the time of a whole run.
    Raise NotExamined as well if such a program trains, and does not save.
    """
    if cluster.plan.trainer.of_user and event != "checkpoint_saved":
        how.setdefault("within_s", cluster.deadlines.run_s)
    try:
        return cluster.wait_for(event, task, **how)
    except DeadlineExceeded as error:
        if cluster.plan.trainer.of_user and event == "checkpoint_saved":
            _raise_if_it_trains(cluster, error)
        raise
    except TrainerFailed as error:
        awaited = [task] if task else cluster.drivers
        ends = [cluster.run().exit_of(one) for one in awaited]
        if cluster.plan.trainer.of_user and all(end and end["code"] == 0 for end in ends):
            raise NotExamined(too_short(cluster.run())) from error
        raise


def _raise_if_it_trains(cluster: Cluster, error: DeadlineExceeded) -> None:
    """Raise NotExamined if a user's program still trains, and only saves too rarely."""
    run = cluster.run()
    steps = run.of(run.trainer.progress)
    if steps and time.monotonic() - steps[-1].time_s < cluster.deadlines.step_s:
        raise NotExamined(
            f"it saves too rarely to be examined: at step {steps[-1]['global_step']} it had saved "
            "at most its first state"
        ) from error


def too_short(run: Run) -> str:
    """Return why a run without enough steps examines nothing, and what would make it longer."""
    steps = max((e["steps"] for e in run.of("finished")), default=0)
    said = f"its run ends after {steps} steps, before the test has seen enough"
    if {"epochs", "steps-per-epoch"} & set(run.trainer.flags):
        return f"{said}; it was asked for more"
    return f"{said}: give the program arguments with {{epochs}} or {{steps_per_epoch}}"


def wait_started(cluster: Cluster, tasks: tuple[str, ...] | list[str], attempt: int = 0) -> None:
    for task in tasks:
        cluster.wait_for("started", task, attempt=attempt)


def complete(
    launch: Launch, trainer: Trainer | None = None, *, may_refuse: bool = False, **how: Any
) -> Run:
    """Start all tasks and wait for the end; see `Cluster.complete`."""
    with launch(trainer, **how) as cluster:
        cluster.start()
        return cluster.complete(may_refuse=may_refuse)


def trained(launch: Launch, trainer: Trainer | None = None, **how: Any) -> Run:
    """Start all tasks and wait until every driver has reported its weights after the last epoch.

    For scenarios that examine training only: leaving Keras' fit may take seconds more, in which
    tf.data's tuner sleeps and cannot be woken.
    """
    if (trainer or launch.case.trainer).of_user:
        return complete(launch, trainer, **how)
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
    """Return a trainer of one process on the same model.

    That is `single_process`, where it has the model. A program with its own model is compared with
    itself in a cluster of one.
    """
    if trainer.model and trainer.name in BY_NAME:
        return BY_NAME["single_process"]
    alone = {"jobs": (), "role": "none", "backends": ("none",), "devices": 1}
    flags = tuple(flag for flag in trainer.flags if flag != "backend")
    return replace(trainer, flags=flags, **alone)


def preemptible(trainer: Trainer) -> str:
    """Return the program that trains as this trainer does, reports itself and heeds a notice."""
    return "preemptible_fit" if trainer.fit else "preemptible_loop"


def program(launch: Launch, name: str, **changes: Any) -> Trainer:
    """Return the case's row with another program, which takes no optional trainer flags.

    It writes its events itself, unless `changes` says that it runs a plain trainer.
    """
    own: dict[str, Any] = {"flags": (), "plain": False, **changes}
    return replace(launch.case.trainer, name=name, path=str(PROGRAMS / f"{name}.py"), **own)
