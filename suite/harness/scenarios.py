"""What happens to a cluster, as plain functions from `launch` to the histories it leaves behind.

A scenario only orchestrates: it starts, waits for events, hurts and restarts, and leaves it to the
checks to judge. Fakes go through the same scenarios as TensorFlow does. Sizes are the smallest on
which the properties can be told; none is a benchmark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from reference_trainers import BY_NAME, Trainer
from suite.harness.cases import Case
from suite.harness.cluster import Cluster
from suite.harness.engine import Engine
from suite.harness.run import Run
from suite.harness.waiting import wait_until

# Three epochs in which a workload of any kind visibly learns, at a rate that makes it sure to.
WORK = {"epochs": 3, "steps-per-epoch": 15, "batch-size": 64, "learning-rate": 0.005}
# Asynchronous workers share a number of steps, and one may be up later than another: enough steps
# for all. (A worker that is not up when the chief has finished would wait for the chief for ever.)
ASYNCHRONOUS_STEPS = 200
TRAIN, TEST = 4096, 1024  # examples of the data that are enough for it; fewer start sooner
NEVER = 100_000  # steps per epoch of a run that is to be ended from outside
FEW = 5  # steps that show that a worker trains


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


@dataclass(frozen=True)
class Compared:
    """A run and the one that it is held against."""

    run: Run
    reference: Run


@dataclass(frozen=True)
class Continued:
    """A run and the one that went on from what it had saved."""

    run: Run
    then: Run


@dataclass(frozen=True)
class Moved:
    """A run, one of another approach that went on from what it had saved, and a third from there.

    `reference` is one process without a strategy.
    """

    run: Run
    then: Run
    reference: Run


@dataclass(frozen=True)
class Intruded:
    """A run and the name of the task that tried to join it."""

    run: Run
    stranger: str


def runs_of(outcome: object) -> list[Run]:
    """All histories in what a scenario gave."""
    if isinstance(outcome, Run):
        return [outcome]
    if isinstance(outcome, list):
        return outcome
    parts = [getattr(outcome, f.name) for f in fields(outcome)]  # type: ignore[arg-type]
    return [part for part in parts if isinstance(part, Run)]


# --- pieces --------------------------------------------------------------------------------------


def work(launch: Launch, trainer: Trainer | None = None, **flags: Any) -> dict[str, Any]:
    """WORK on a part of the data, changed by `flags` (`batch_size=32`), as far as it is taken."""
    trainer = trainer or launch.case.trainer
    given = {k.replace("_", "-"): v for k, v in flags.items()}
    # Both sides of a comparison train as the document of the trainer under test does.
    row = launch.case.trainer
    rate = row.learning_rate or WORK["learning-rate"]
    own = {"model": row.model or None, "optimizer": row.optimizer, "learning-rate": rate}
    wanted = {**WORK, "data": part_of_data(launch, TRAIN, TEST), **own, **given}
    if not trainer.synchronous and "steps-per-epoch" not in given:
        workers = len(launch.engine.topology(trainer).workers)
        shared = WORK["steps-per-epoch"] * workers  # where a coordinator waits until all are up
        wanted["steps-per-epoch"] = shared if coordinated(trainer) else ASYNCHRONOUS_STEPS
    optional = {f for row in BY_NAME.values() for f in row.flags}
    return {k: v for k, v in wanted.items() if k not in optional or k in trainer.flags}


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


def quiet_s(launch: Launch) -> float:
    """How long nothing may happen before we believe that it waits: longer than starting takes."""
    return launch.engine.deadlines.detect_s / 20


def endless_work(launch: Launch, **flags: Any) -> dict[str, Any]:
    """Work that does not end by itself: for scenarios that are over when something was seen."""
    if launch.case.trainer.progress == "epoch":
        return work(launch, epochs=NEVER, steps_per_epoch=FEW, **flags)
    return work(launch, epochs=1, steps_per_epoch=NEVER, **flags)


def wait_all_step(cluster: Cluster, attempt: int | None = None, after_s: float = 0.0) -> None:
    """Until every driver has told a few steps, of that incarnation, after that time."""
    for driver in cluster.drivers:
        cluster.wait_for(
            cluster.plan.trainer.progress,
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


# --- nothing goes wrong --------------------------------------------------------------------------


def healthy(launch: Launch) -> Run:
    """Undisturbed, with everything on: one run for every check that can read it."""
    directory = launch.directory / "model"
    flags = work(launch, evaluate=True, export=launch.directory / "export" / "saved", save_every=20)
    if launch.case.trainer.keras:
        flags.pop("save-every", None)  # there it would replace the backup of every epoch
    return complete(launch, flags=flags, model_dir=directory)


def reference(launch: Launch, **flags: Any) -> Run:
    """One process without a strategy on such work; the same work is done once in a session."""
    one = single(launch.case.trainer)
    given = work(launch, one, **flags)
    told = sorted({**given, "data": Path(given["data"]).name}.items())
    key = (launch.case.keras, one.program, *told)

    def make() -> Run:
        return trained(launch, one, backend="none", jobs=(), flags=given)

    return launch.engine.references.get(key, make)


def beside_baseline(launch: Launch) -> Compared:
    """`healthy`, and one process on the same work."""
    return Compared(launch.outcome(healthy), reference(launch))


def _chief_and_workers(launch: Launch) -> tuple[tuple[str, int], ...]:
    workers = len(launch.engine.topology(launch.case.trainer).workers)
    return (("chief", 1), *((("worker", workers - 1),) if workers > 1 else ()))


def chief_job(launch: Launch) -> Run:
    """The chief is a job of its own, beside one worker fewer."""
    flags = work(launch, epochs=1, steps_per_epoch=FEW)
    return complete(launch, jobs=_chief_and_workers(launch), flags=flags)


def followed(launch: Launch) -> Run:
    """The chief is a job of its own, and an evaluator, no member, follows the checkpoints."""
    jobs = (*_chief_and_workers(launch), ("evaluator", 1))
    flags = work(launch, epochs=2, steps_per_epoch=FEW)
    return complete(launch, jobs=jobs, flags=flags, model_dir=launch.directory / "model")


def late_worker(launch: Launch) -> Run:
    """The last task starts only when all others have been up for a while."""
    return _late(launch, -1)


def late_chief(launch: Launch) -> Run:
    """The chief starts only when all others have been up for a while."""
    return _late(launch, 0)


def _late(launch: Launch, worker: int) -> Run:
    """That one of the workers starts last; the run is over when all have made a few steps."""
    with launch(flags=endless_work(launch)) as cluster:
        late = cluster.workers[worker]
        others = [task for task in cluster.tasks if task != late]
        cluster.start(*others)
        wait_started(cluster, others)
        give_time(cluster, quiet_s(launch), lambda run: run.of(run.trainer.progress))
        cluster.start(late)
        wait_all_step(cluster)
        return cluster.run()


def alone(launch: Launch) -> Run:
    """The same program as one process that is told nothing of a cluster."""
    flags = work(launch, epochs=1, steps_per_epoch=5)
    with launch(jobs=(), flags=flags) as cluster:
        cluster.start()
        return cluster.finish()


def intruder(launch: Launch) -> Intruded:
    """While the cluster trains, a task starts that believes to be one worker more."""
    workers = len(launch.engine.topology(launch.case.trainer).workers)
    with launch(workers=workers + 1, flags=endless_work(launch)) as cluster:
        seen_by_stranger = cluster.plan
        stranger = cluster.workers[-1]
        topology = seen_by_stranger.topology.with_workers(workers)
        cluster.plan = replace(seen_by_stranger, topology=topology)
        cluster.start()
        wait_all_step(cluster)
        with changed_plan(cluster, seen_by_stranger):
            cluster.start(stranger)
        up = cluster.wait_for("started", stranger)
        give_time(
            cluster,
            quiet_s(launch),
            lambda run: run.exit_of(stranger) or run.of("step", stranger),
        )
        wait_all_step(cluster, after_s=up.time_s)
        return Intruded(cluster.run(), stranger)


@contextlib.contextmanager
def changed_plan(cluster: Cluster, plan: Any) -> Iterator[None]:
    """Another idea of the cluster, for the tasks that are started meanwhile."""
    own, cluster.plan = cluster.plan, plan
    yield
    cluster.plan = own


def large_batch(launch: Launch, replicas: int | None = None, **flags: Any) -> Compared:
    """Some steps of all replicas, and of one process with the batch of all of them together.

    `replicas`: another number of them, as workers or, of a trainer of one process, as devices.
    `flags`: what else the trainer is told; of it the one process is told the precision only.
    """
    small: dict[str, Any] = {"epochs": 2, "steps_per_epoch": 5, "dump_weights": True}
    small.update(optimizer="momentum", learning_rate=0.01)
    # In an order that does not depend on how often an iterator is made: under a strategy Keras 3
    # takes a batch before it trains, and begins the data again, which shuffles them again.
    small["order"] = "by-epoch"
    several = launch.case.distributed
    workers: dict[str, Any] = {"workers": replicas} if replicas and several else {}
    devices: dict[str, Any] = {"devices": replicas} if replicas and not several else {}
    run = trained(launch, flags=work(launch, **small, **devices, **flags), **workers)
    small["precision"] = flags.get("precision")
    together = WORK["batch-size"] * run.replicas
    if "initial-weights" in run.trainer.flags:  # it does not draw them as Keras does
        small["initial_weights"] = start_of(run)
    return Compared(run, reference(launch, **small, batch_size=together))


def compiled_gradients(launch: Launch) -> Compared:
    """`large_batch` where XLA compiles what each replica computes by itself."""
    return large_batch(launch, jit="gradients")


def compiled_step(launch: Launch) -> Compared:
    """`large_batch` where XLA compiles the whole step, the reduction over replicas as well."""
    return large_batch(launch, jit="step")


def compiled_step_of_one(launch: Launch) -> Compared:
    """The same of a strategy that has one replica only."""
    return large_batch(launch, 1, jit="step")


def mixed_precision(launch: Launch) -> Compared:
    """`large_batch` in mixed precision, of both."""
    return large_batch(launch, precision="mixed_bfloat16")


def one_replica(launch: Launch) -> Compared:
    """`large_batch` of a strategy that has one replica only."""
    return large_batch(launch, 1)


def four_replicas(launch: Launch) -> Compared:
    """`large_batch` of four replicas."""
    return large_batch(launch, 4)


def moved_from(source: Trainer) -> Callable[[Launch], Moved]:
    """The scenario `moved` from that approach."""

    def scene(launch: Launch) -> Moved:
        return moved(launch, source)

    scene.__name__ = f"moved_{source.name}"
    return scene


def moved_from_next(launch: Launch) -> Moved:
    """The scenario `moved` from the next approach in the table that others can restore from.

    So each strategy's checkpoint is restored, and each strategy restores one.
    """
    names = list(BY_NAME)
    own = names.index(launch.case.trainer.name)
    portable = [row for row in BY_NAME.values() if row.portable]
    near = min(portable, key=lambda row: (names.index(row.name) - own - 1) % len(names))
    return launch.outcome(moved_from(near))


def moved(launch: Launch, source: Trainer) -> Moved:
    """What another approach has saved, restored by this one, and by one process.

    Devices are twice as many as saved it, so that not only the strategy is another.
    """
    few: dict[str, Any] = {"epochs": 1, "steps_per_epoch": FEW, "order": "by-epoch"}
    few.update(optimizer="momentum", learning_rate=0.01, model=source.model)
    row = launch.case.trainer
    key = (launch.case.keras, source.program)

    def save() -> Run:
        directory, first = launch.directory / "saved", source.backends[0]
        flags = work(launch, source, **few)
        return complete(launch, source, backend=first, flags=flags, model_dir=directory)

    saved = launch.engine.references.get(key, save)
    few["restore"] = saved.of("checkpoint_saved", saved.workers[0])[-1]["path"]
    few["dump_weights"] = True
    devices: dict[str, Any] = {} if row.jobs else {"devices": 2 * row.devices}
    then = trained(launch, flags=work(launch, **few, **devices))
    together = WORK["batch-size"] * then.replicas
    return Moved(saved, then, reference(launch, **few, batch_size=together))


def several_devices(launch: Launch) -> Run:
    """Each worker has two devices."""
    return complete(launch, flags=work(launch, epochs=1, steps_per_epoch=FEW, devices=2))


def start_of(run: Run) -> str:
    """The file of the weights that the run began with; it was asked to dump them."""
    return next(e["npz"] for e in run.of("weights") if e["when"] == "initial")


def clients(launch: Launch) -> Compared:
    """`large_batch` again, from the same start, as two clients with two devices each."""
    pair: Compared = launch.outcome(large_batch)
    trainer = replace(launch.case.trainer, jobs=(("worker", 2),))
    together = int(pair.run.flags["batch-size"]) * pair.run.replicas
    flags = {**pair.run.flags, "devices": 2, "batch-size": together // 4, "evaluate": True}
    flags["initial-weights"] = start_of(pair.run)
    run = complete(launch, trainer, flags=flags, model_dir=launch.directory / "model")
    return Compared(run, pair.reference)


def audited(launch: Launch, autoshard: str | None = None) -> Run:
    """Whole passes over few data, with the ids of all examples told."""
    batch, steps = 32, 5
    workers = len(launch.engine.topology(launch.case.trainer).workers)
    replicas = workers * launch.case.trainer.devices
    data = part_of_data(launch, batch * steps * replicas, TEST)
    flags = {"data": data, "epochs": 2, "batch_size": batch, "audit_input": True}
    # Without sharding a pass takes every worker as many times longer as there are workers.
    steps *= workers if autoshard == "off" else 1
    return trained(launch, flags=work(launch, **flags, steps_per_epoch=steps, autoshard=autoshard))


def scheduled(launch: Launch) -> Run:
    """So many epochs, of a few steps each, that a schedule by epoch has come to its last part."""
    flags = work(launch, epochs=9, steps_per_epoch=2, learning_rate=0.001)
    return complete(launch, flags=flags, model_dir=launch.directory / "model")


def audited_off(launch: Launch) -> Run:
    """`audited` with sharding turned off."""
    return audited(launch, autoshard="off")


def continued(launch: Launch) -> Continued:
    """A run to its end, and one on the same directory that is asked for an epoch more."""

    def until(epochs: int) -> Run:
        flags = work(launch, epochs=epochs, steps_per_epoch=10, optimizer="momentum")
        return complete(launch, flags=flags, model_dir=launch.directory / "model")

    return Continued(until(1), until(2))


def resharded(launch: Launch) -> Continued:
    """A run with its variables in shards, and one that goes on with a parameter server more.

    Whether the second one can is for a check to judge.
    """
    jobs = dict(launch.engine.topology(launch.case.trainer).jobs)
    more = tuple({**jobs, "ps": jobs["ps"] + 1}.items())

    def until(epochs: int) -> dict[str, Any]:
        flags = work(launch, epochs=epochs, steps_per_epoch=FEW, shard_bytes=1 << 16)
        return {"flags": flags, "model_dir": launch.directory / "model"}

    run = complete(launch, **until(1))
    with launch(jobs=more, **until(2)) as cluster:
        cluster.start()
        return Continued(run, cluster.finish())
