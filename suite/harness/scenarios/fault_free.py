"""Define the scenarios without faults, as plain functions from `launch` to their outcome.

A scenario only orchestrates: it starts tasks, waits for events, and injects faults. Checks judge
the outcome. Fakes run through the same scenarios as TensorFlow does.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from reference_trainers import BY_NAME, Trainer
from suite.harness.cluster.cluster import Cluster
from suite.harness.core.errors import NotExamined, Unsupported
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared, Continued, Moved, UnexpectedTask
from suite.harness.core.paths import remains
from suite.harness.scenarios.base import (
    FEW,
    TEST,
    WORK,
    Launch,
    complete,
    coordinated,
    endless_work,
    give_time,
    model_of,
    part_of_data,
    quiet_s,
    single,
    trained,
    wait_all_step,
    wait_started,
    work,
)


def healthy(launch: Launch) -> Run:
    """Run without faults, with all features on: one run for every check that can read it."""
    directory = launch.directory / "model"
    saved = launch.directory / "export" / "saved"
    # Of 600 steps no eighth save is due, so the last one within training is not of the last step.
    flags = work(launch, evaluate=True, export=saved, save_every=77, dump_weights=True)
    if launch.case.trainer.keras:
        flags.pop("save-every", None)  # with Keras it would replace the backup of every epoch
    return complete(launch, flags=flags, model_dir=directory)


def many_epochs(launch: Launch) -> Run:
    """Run a hundred short epochs, each with its save and its evaluation."""
    flags = work(launch, epochs=100, steps_per_epoch=WORK["steps-per-epoch"], evaluate=True)
    return complete(launch, flags=flags, model_dir=launch.directory / "model")


def reference(launch: Launch, **flags: Any) -> Run:
    """Run one process without a strategy on the same work, once per session."""
    one = single(launch.case.trainer)
    given = work(launch, one, **flags)
    identity = sorted({**given, "data": Path(given["data"]).name}.items())
    key = (launch.case.keras, one.program, *identity)

    def make() -> Run:
        return trained(launch, one, backend="none", jobs=(), flags=given)

    return launch.engine.references.get(key, make)


def with_baseline(launch: Launch) -> Compared:
    """Return `healthy`, and one process on the same work."""
    return Compared(launch.outcome(healthy), reference(launch))


def chief_and_workers(launch: Launch) -> tuple[tuple[str, int], ...]:
    workers = len(launch.engine.topology(launch.case.trainer).workers)
    return (("chief", 1), *((("worker", workers - 1),) if workers > 1 else ()))


def chief_job(launch: Launch) -> Run:
    """Run with the chief as a separate job and one worker fewer."""
    flags = work(launch, epochs=1, steps_per_epoch=FEW)
    return complete(launch, jobs=chief_and_workers(launch), flags=flags)


def followed(launch: Launch) -> Run:
    """Run with a separate chief job and an evaluator that follows the checkpoints.

    The evaluator is not a member of the cluster.
    """
    jobs = (*chief_and_workers(launch), ("evaluator", 1))
    flags = work(launch, epochs=2, steps_per_epoch=FEW)
    return complete(launch, jobs=jobs, flags=flags, model_dir=launch.directory / "model")


def late_worker(launch: Launch) -> Run:
    """Start the last task only after all others have been up for a while."""
    return _late(launch, -1)


def late_chief(launch: Launch) -> Run:
    """Start the chief only after all others have been up for a while."""
    return _late(launch, 0)


def _late(launch: Launch, worker: int) -> Run:
    """Start that worker last. The run is over when all tasks have made a few steps."""
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
    """Run the same program as one process without a cluster configuration."""
    flags = work(launch, epochs=1, steps_per_epoch=5, dump_weights=True)
    with launch(jobs=(), flags=flags) as cluster:
        cluster.start()
        return cluster.finish()


def unexpected_task(launch: Launch) -> UnexpectedTask:
    """Start a task that is configured as one more worker, while the cluster trains."""
    workers = len(launch.engine.topology(launch.case.trainer).workers)
    with launch(workers=workers + 1, flags=endless_work(launch)) as cluster:
        larger = cluster.plan
        unexpected = cluster.workers[-1]
        topology = larger.topology.with_workers(workers)
        cluster.plan = replace(larger, topology=topology)
        cluster.start()
        wait_all_step(cluster)
        with changed_plan(cluster, larger):
            cluster.start(unexpected)
        up = cluster.wait_for("started", unexpected)
        give_time(
            cluster,
            quiet_s(launch),
            lambda run: run.exit_of(unexpected) or run.of("step", unexpected),
        )
        wait_all_step(cluster, after_s=up.time_s)
        return UnexpectedTask(cluster.run(), unexpected)


@contextlib.contextmanager
def changed_plan(cluster: Cluster, plan: Any) -> Iterator[None]:
    """Replace the cluster's plan for tasks that start within the context."""
    own, cluster.plan = cluster.plan, plan
    yield
    cluster.plan = own


def large_batch(
    launch: Launch,
    replicas: int | None = None,
    steps_per_epoch: int = FEW,
    optimizer: str = "momentum",
    learning_rate: float = 0.01,
    **flags: Any,
) -> Compared:
    """Run some steps on all replicas, and on one process with their combined batch.

    `replicas`: another number of replicas, as workers or, in a trainer of one process, as devices.
    `flags`: more flags of the trainer; the one process gets only model and precision.
    """
    small: dict[str, Any] = {"epochs": 2, "steps_per_epoch": steps_per_epoch}
    small["dump_weights"] = True
    small.update(optimizer=optimizer, learning_rate=learning_rate)
    # The order must not depend on how often an iterator is made: under a strategy Keras 3 takes a
    # batch before it trains, and restarts the data, which shuffles them again.
    small["order"] = "by-epoch"
    several = launch.case.distributed
    workers: dict[str, Any] = {"workers": replicas} if replicas and several else {}
    devices: dict[str, Any] = {"devices": replicas} if replicas and not several else {}
    run = trained(launch, flags=work(launch, **small, **devices, **flags), **workers)
    small.update({k: v for k, v in flags.items() if k in ("model", "precision")})
    together = WORK["batch-size"] * run.replicas
    if "initial-weights" in run.trainer.flags:  # drawn differently from Keras
        small["initial_weights"] = start_of(run)
    return Compared(run, reference(launch, **small, batch_size=together))


# Lets the observer save the weights that it digests.
DUMP = {"TRAINER_DUMP": "1", "OBSERVER_DUMP": "1"}


def one_worker_on_the_large_batch(launch: Launch) -> Compared:
    """Run some steps of a user's program in its cluster, and alone with the whole batch."""
    flags = work(launch, epochs=1, steps_per_epoch=FEW)
    run = complete(launch, flags=flags, env=DUMP)
    flags["batch-size"] *= len(run.workers)
    return Compared(run, complete(launch, jobs=(), flags=flags, env=DUMP))


def compiled_gradients(launch: Launch) -> Compared:
    """Run `large_batch`, where XLA compiles the computation of each replica."""
    return large_batch(launch, jit="gradients")


def compiled_step(launch: Launch) -> Compared:
    """Run `large_batch`, where XLA compiles the whole step with the reduction over replicas."""
    return large_batch(launch, jit="step")


def compiled_step_of_one(launch: Launch) -> Compared:
    """Run `compiled_step` with a strategy of one replica."""
    return large_batch(launch, 1, jit="step")


def mixed_precision(launch: Launch) -> Compared:
    """Run `large_batch` with both sides in mixed precision."""
    return large_batch(launch, precision="mixed_bfloat16")


def adam(launch: Launch) -> Compared:
    """Run `large_batch` with the optimizer of the documents of MirroredStrategy."""
    # Few steps: with each, rounding may choose another ReLU on one side.
    return large_batch(launch, steps_per_epoch=3, optimizer="adam", learning_rate=0.001)


def audited_adam(launch: Launch) -> Run:
    """Run some steps with Adam, with the ids of all examples and the weights after each step."""
    given: dict[str, Any] = {"epochs": 12, "steps_per_epoch": 1, "optimizer": "adam"}
    given.update(learning_rate=0.001, audit_input=True, dump_weights=True)
    return trained(launch, flags=work(launch, **given))


def aggregated(launch: Launch) -> Run:
    """Run workers whose gradients are aggregated, with the ids of all examples and the weights."""
    flags = work(launch, epochs=1, audit_input=True, dump_weights=True)
    return complete(launch, flags=flags)


def synchronized(launch: Launch) -> Compared:
    """Run `large_batch` with a model whose batch normalization uses the batch of all replicas."""
    return large_batch(launch, steps_per_epoch=3, model="synchronized-cnn")


def normalized(launch: Launch) -> Moved:
    """Run a model with batch normalization, again in the same directory, and on one process.

    The one process normalizes the batch of each replica by itself.
    """
    # Few steps: with each, rounding may choose another ReLU on one side.
    few: dict[str, Any] = {"epochs": 2, "steps_per_epoch": 3, "order": "by-epoch"}
    few.update(optimizer="momentum", learning_rate=0.01, dump_weights=True)

    def until(epochs: int, **more: Any) -> Run:
        flags = work(launch, **{**few, "epochs": epochs}, model="normalized-cnn", **more)
        return complete(launch, flags=flags, model_dir=launch.directory / "model")

    run = until(2, evaluate=True, export=launch.directory / "export" / "saved")
    then = until(3)
    together = WORK["batch-size"] * run.replicas
    few["model"] = "virtual-batches-cnn"
    return Moved(run, then, reference(launch, **few, batch_size=together))


def normalized_on_servers(launch: Launch) -> Run:
    """Run a model with batch normalization, whose statistics are on parameter servers."""
    flags = work(launch, epochs=1, model="normalized-cnn", evaluate=True, dump_weights=True)
    return complete(launch, flags=flags)


def dropped(launch: Launch) -> Run:
    """Run a model with a Dropout layer, with the mask of each replica's last example."""
    flags = work(launch, epochs=2, steps_per_epoch=FEW, model="dropout-cnn", dump_weights=True)
    return trained(launch, flags=flags)


def one_replica(launch: Launch) -> Compared:
    """Run `large_batch` with a strategy of one replica."""
    return large_batch(launch, 1)


def four_replicas(launch: Launch) -> Compared:
    """Run `large_batch` with four replicas."""
    return large_batch(launch, 4)


@cache  # outcomes are cached by function, so there must be one of each
def moved_from(source: Trainer) -> Callable[[Launch], Moved]:
    """Return the scenario `moved` from that approach."""

    def scene(launch: Launch) -> Moved:
        return moved(launch, source)

    scene.__name__ = f"moved_{source.name}"
    return scene


def moved_from_next(launch: Launch) -> Moved:
    """Run `moved` from the next approach in the table whose checkpoints others can restore.

    Thus each strategy restores a checkpoint, and each strategy's checkpoint is restored.
    """
    names = list(BY_NAME)
    own = names.index(launch.case.trainer.name)
    portable = [row for row in BY_NAME.values() if row.portable]
    near = min(portable, key=lambda row: (names.index(row.name) - own - 1) % len(names))
    return launch.outcome(moved_from(near))


def moved(launch: Launch, source: Trainer) -> Moved:
    """Restore the checkpoint of another approach, by this one and by one process.

    The restoring side has twice the devices, so that more than the strategy differs.
    """
    few: dict[str, Any] = {"epochs": 1, "steps_per_epoch": FEW, "order": "by-epoch"}
    few.update(optimizer="momentum", learning_rate=0.01, model=model_of(source))
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
    """Run with two devices for each worker."""
    return complete(launch, flags=work(launch, epochs=1, steps_per_epoch=FEW, devices=2))


def start_of(run: Run) -> str:
    """Return the file of the initial weights of a run that was asked to dump them."""
    return next(e["npz"] for e in run.of("weights") if e["when"] == "initial")


def clients(launch: Launch) -> Compared:
    """Run `large_batch` again, from the same start, as two clients with two devices each."""
    pair: Compared = launch.outcome(large_batch)
    trainer = replace(launch.case.trainer, jobs=(("worker", 2),))
    together = int(pair.run.flags["batch-size"]) * pair.run.replicas
    flags = {**pair.run.flags, "devices": 2, "batch-size": together // 4, "evaluate": True}
    flags["initial-weights"] = start_of(pair.run)
    run = complete(launch, trainer, flags=flags, model_dir=launch.directory / "model")
    return Compared(run, pair.reference)


def clients_alone(launch: Launch) -> Run:
    """Run two clients with a device each, which draw the initial weights by themselves."""
    trainer = replace(launch.case.trainer, jobs=(("worker", 2),))
    return complete(launch, trainer, flags=work(launch, epochs=1, steps_per_epoch=FEW, devices=1))


def audited(launch: Launch, autoshard: str | None = None, order: str | None = None) -> Run:
    """Run whole passes over few examples, with the ids of all examples reported."""
    batch, steps = 32, 5
    workers = len(launch.engine.topology(launch.case.trainer).workers)
    replicas = workers * launch.case.trainer.devices
    data = part_of_data(launch, batch * steps * replicas, TEST)
    flags = {"data": data, "epochs": 2, "batch_size": batch, "audit_input": True}
    # Without sharding, a pass of each worker takes as many times longer as there are workers.
    steps *= workers if autoshard == "off" else 1
    flags.update(steps_per_epoch=steps, autoshard=autoshard, order=order)
    return trained(launch, flags=work(launch, **flags))


def batches_by_worker(run: Run) -> Counter[str]:
    """Return the number of audited batches of each worker; a coordinator reports its workers'.

    Raise Unsupported if the coordinator does not know whose they are.
    """
    reports = Counter(e.get("worker", e.task) for e in run.of("input"))
    if None in reports:
        raise Unsupported("a function cannot ask which worker executes it")
    return reports


def audited_apart(launch: Launch) -> Run:
    """Run asynchronous workers until each has made several passes; report the ids of all examples.

    The run has no shared step limit: the worker that is up first might make nearly all of those
    steps. Unsupported where a coordinator cannot say which worker made a step.
    """
    batch, batches = 32, 3
    data = part_of_data(launch, batch * batches, TEST)
    flags = endless_work(launch, data=data, batch_size=batch, audit_input=True)
    with launch(flags=flags) as cluster:
        cluster.start()

        def all_twice(run: Run) -> bool:
            cluster.check_supported()
            reports = batches_by_worker(run)
            return all(reports[worker] >= 2 * batches for worker in cluster.workers)

        give_time(cluster, launch.engine.deadlines.step_s, all_twice)
        return cluster.run()


def scheduled(launch: Launch) -> Run:
    """Run enough epochs, of a few steps each, to reach the last part of a schedule by epoch."""
    flags = work(launch, epochs=9, steps_per_epoch=2, learning_rate=0.001)
    return complete(launch, flags=flags, model_dir=launch.directory / "model")


def audited_as_documented(launch: Launch) -> Run:
    """Run `audited` with each worker's share of the data as the document divides them."""
    return audited(launch, order="document")


def audited_off(launch: Launch) -> Run:
    """Run `audited` with sharding turned off."""
    return audited(launch, autoshard="off")


def continued(launch: Launch) -> Continued:
    """Run to the end, then run again in the same directory with one more epoch."""

    row = launch.case.trainer

    def until(epochs: int) -> Run:
        given: dict[str, Any] = {"epochs": epochs, "optimizer": "momentum", "audit_input": True}
        if row.synchronous or coordinated(row):  # others would wait for a chief that has finished
            given["steps_per_epoch"] = 10
        flags = work(launch, **given)
        return complete(launch, flags=flags, model_dir=launch.directory / "model")

    first = until(2)
    must_leave_checkpoint(first)
    return Continued(first, until(3))


def must_leave_checkpoint(run: Run) -> None:
    """Raise NotExamined if a user's program removes its checkpoints, as BackupAndRestore does."""
    saves = run.of("checkpoint_saved", run.drivers[0])
    if run.trainer.of_user and not any(remains(e["path"]) for e in saves):
        raise NotExamined("no checkpoint is left when its run ends")


def resharded(launch: Launch) -> Continued:
    """Run with sharded variables, then continue with one more parameter server.

    A check judges whether the second run can.
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
