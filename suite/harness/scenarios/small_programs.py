"""Scenarios of small programs, for promises that no trainer shows in passing (suite/programs)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness.core.errors import HarnessError
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared, Continued
from suite.harness.core.paths import ROOT
from suite.harness.scenarios.base import (
    FEW,
    TEST,
    TRAIN,
    Launch,
    complete,
    model_of,
    part_of_data,
    single,
    work,
)
from suite.harness.scenarios.crashes import preemption
from suite.harness.scenarios.fault_free import (
    changed_plan,
    healthy,
    large_batch,
    scheduled,
    start_of,
)

PROGRAMS = ROOT / "suite" / "programs"
# Flags that every trainer gets and a program with a parser of its own does not know.
NOT_TAKEN = {"data": None, "seed": None}


def program(launch: Launch, name: str, **changes: Any) -> Trainer:
    """The case's row with another program, which takes no optional flags of trainers."""
    row = launch.case.trainer
    return replace(row, name=name, path=str(PROGRAMS / f"{name}.py"), **{"flags": (), **changes})


def alone(launch: Launch, name: str, **changes: Any) -> Trainer:
    """A program that is one process and no part of a cluster."""
    alone = {"jobs": (), "role": "none", "backends": ("none",), "services": ()}
    return program(launch, name, **alone, **changes)


def finished(launch: Launch, trainer: Trainer, **how: Any) -> Run:
    """Start all and wait for the end, whatever it is."""
    with launch(trainer, **how) as cluster:
        cluster.start()
        return cluster.finish()


def enough_files(launch: Launch) -> Run:
    """Workers read files under AutoShardPolicy.FILE, two for each of them."""
    return _files(launch, per_worker=2)


def too_few_files(launch: Launch) -> Run:
    """Workers read files under AutoShardPolicy.FILE, one fewer than there are workers."""
    return _files(launch, per_worker=0)


def _files(launch: Launch, per_worker: int) -> Run:
    trainer = program(launch, "autoshard_file")
    workers = len(launch.engine.topology(trainer).workers)
    files = per_worker * workers or workers - 1
    flags = {**NOT_TAKEN, "files": files, "records": 32, "steps": 8 * per_worker or 1}
    return finished(launch, trainer, flags=flags, model_dir=launch.directory / "files")


def pass_by_default(launch: Launch) -> Run:
    """One pass over examples in memory that are not a multiple of the batch, under AUTO."""
    return _one_pass(launch, "auto")


def pass_by_data(launch: Launch) -> Run:
    """The same under AutoShardPolicy.DATA."""
    return _one_pass(launch, "data")


def pass_by_function(launch: Launch) -> Run:
    """The same by distribute_datasets_from_function, each worker with a data set of its share."""
    return _one_pass(launch, "function")


def pass_without_shards(launch: Launch) -> Run:
    """The same under AutoShardPolicy.OFF."""
    return _one_pass(launch, "off")


def _one_pass(launch: Launch, way: str) -> Run:
    workers, batch = len(launch.engine.topology(launch.case.trainer).workers), 8
    # Six whole global batches, and of a seventh one example for each worker but the last.
    examples = 6 * batch * workers + max(1, workers - 1)
    flags = {**NOT_TAKEN, "way": way, "examples": examples, "batch-size": batch}
    return complete(launch, program(launch, "one_pass"), flags=flags)


def built_outside_scope(launch: Launch) -> Run:
    """A model is built outside the strategy's scope, and compiled inside."""
    return _scope(launch, build="outside", compile="inside")


def all_outside_scope(launch: Launch) -> Run:
    """A model is built and compiled outside the strategy's scope."""
    return _scope(launch, build="outside", compile="outside")


def inside_scope(launch: Launch) -> Run:
    """The same model, built and compiled inside."""
    return _scope(launch, build="inside", compile="inside")


def _scope(launch: Launch, **where: str) -> Run:
    flags = {**NOT_TAKEN, **where}
    return finished(launch, program(launch, "built_outside_scope"), flags=flags)


def packed_by_the_call(launch: Launch) -> Run:
    """All-reduce of several tensors, told with each call into packs of how many bytes."""
    return _packed(launch, "call")


def packed_by_the_strategy(launch: Launch) -> Run:
    """The same, told with the strategy's constructor alone."""
    return _packed(launch, "strategy")


def _packed(launch: Launch, told: str) -> Run:
    tensors, each_bytes = 4, 4096
    how = {"tensors": tensors, "sizes": tensors * each_bytes, "bytes-per-pack": each_bytes}
    flags = {**NOT_TAKEN, **how, "told": told, "at-least": 1, "at-most": 1}
    trainer = program(launch, "collectives", flags=("backend",))
    return complete(launch, trainer, flags=flags)


def preempted_where_keras_heeds_it(launch: Launch) -> Compared:
    """`preempted` of `fit`, where Keras takes its platform for one that gives notice."""
    name = "keras_preemption"
    trainer = replace(launch.case.trainer, name=name, path=str(PROGRAMS / f"{name}.py"))
    return preemption(launch, trainer)


def local_server(launch: Launch) -> Run:
    """A process starts a local server and uses it; then another process uses it by its address.

    Unsupported without namespaces: the server picks its port.
    """
    launch.engine.network.check_own_ports("create_local_server")
    trainer = program(launch, "local_server", role="none", jobs=(("worker", 2),))
    with launch(trainer, jobs=trainer.jobs, flags=NOT_TAKEN) as cluster:
        server, client = cluster.tasks
        cluster.start(server)
        target = cluster.wait_for("serving")["target"]
        own = cluster.plan
        with changed_plan(cluster, replace(own, flags={**own.flags, "target": target})):
            cluster.start(client)
        cluster.wait_exit(client)
        return cluster.run()


def model_checkpoint(launch: Launch) -> Continued:
    """Twice the same program with ModelCheckpoint, on one directory."""
    trainer = program(launch, "model_checkpoint")

    def once() -> Run:
        data = part_of_data(launch, TRAIN, TEST)
        return complete(launch, trainer, flags={"data": data}, model_dir=launch.directory / "model")

    return Continued(once(), once())


def shared_backup(launch: Launch) -> Continued:
    """BackupAndRestore, interrupted and run again, where another manager saves as well."""
    return _backup(launch, inside=True)


def separate_backup(launch: Launch) -> Continued:
    """The same with a directory of its own for each: what the document advises."""
    return _backup(launch, apart=True)


def _backup(launch: Launch, **where: bool) -> Continued:
    trainer = alone(launch, "shared_backup_dir")

    def once() -> Run:
        directory = launch.directory / "model"
        return finished(
            launch, trainer, backend="none", flags={**NOT_TAKEN, **where}, model_dir=directory
        )

    return Continued(once(), once())


def aggregates(launch: Launch) -> Run:
    """Fresh and stale gradients of known sizes are given to SyncReplicasOptimizer, in turn."""
    flags = {**NOT_TAKEN, "replicas-to-aggregate": 2}
    return finished(launch, alone(launch, "aggregates"), backend="none", jobs=(), flags=flags)


def side_evaluator(launch: Launch) -> Compared:
    """A task beside the cluster waits for its checkpoints and evaluates them."""
    return _beside(launch, {})


def sidecar_evaluator(launch: Launch) -> Compared:
    """The same by Keras' SidecarEvaluator."""
    return _beside(launch, {"sidecar": True})


def _beside(launch: Launch, how: dict[str, Any]) -> Compared:
    directory = launch.directory / "model"
    flags = work(launch, epochs=1, steps_per_epoch=10, evaluate=True)
    how |= {"until-step": flags["epochs"] * flags["steps-per-epoch"]}
    how |= {key: flags.get(key) for key in ("data", "model")}
    watcher = alone(launch, "side_evaluator")
    with launch(watcher, flags=how, model_dir=directory) as evaluator:
        evaluator.start()
        run = complete(launch, flags=flags, model_dir=directory)
        return Compared(run, evaluator.complete())


def eager_estimator(launch: Launch) -> Run:
    """The Estimator's trainer as it is, but with eager execution left on."""
    trainer = program(launch, "estimator_eager", flags=launch.case.trainer.flags)
    flags = work(launch, trainer, epochs=1, steps_per_epoch=FEW)
    return finished(launch, trainer, flags=flags)


def estimator_from_keras(launch: Launch) -> Run:
    """An Estimator made of a compiled Keras model trains under the strategy."""
    trainer = program(launch, "estimator_from_keras", flags=launch.case.trainer.flags)
    flags = work(launch, trainer, epochs=2, steps_per_epoch=FEW, learning_rate=0.1)
    return complete(launch, trainer, flags=flags, model_dir=launch.directory / "model")


def estimator_predictions(launch: Launch) -> Run:
    """One process trains a little, then evaluates and predicts in every way that there is."""
    trainer = alone(launch, "estimator_predict", flags=single(launch.case.trainer).flags)
    flags = work(launch, trainer, epochs=1, steps_per_epoch=FEW)
    directory = launch.directory / "model"
    return complete(launch, trainer, backend="none", flags=flags, model_dir=directory)


def estimator_api(launch: Launch) -> Run:
    """One process looks for tf.estimator."""
    return finished(launch, alone(launch, "estimator_api"), backend="none", flags=NOT_TAKEN)


def loaded_export(launch: Launch) -> Continued:
    """The saved model of the healthy run's chief, loaded by one process, evaluated and trained on.

    Where the run had several devices, it is loaded in a strategy's scope as well, and where it kept
    its checkpoints, the last of these.
    """
    exporting: Run = launch.outcome(healthy)
    chief, row = exporting.workers[0], exporting.trainer
    flags = {
        "data": exporting.flags["data"],
        "export": exporting.of("exported", chief)[-1]["path"],
        "devices": exporting.devices,
        "model": model_of(row) or None,
        "optimizer": row.optimizer,
    }
    if not row.jobs:
        flags["checkpoint"] = exporting.of("checkpoint_saved", chief)[-1]["path"]
    loading = alone(launch, "load_export")
    return Continued(exporting, complete(launch, loading, backend="none", jobs=(), flags=flags))


def event_files(launch: Launch) -> Continued:
    """A program reads what the callbacks of `scheduled` have written for TensorBoard.

    HarnessError where the tasks' interpreter has none; TensorFlow brought it along until 2.20.
    """
    writing: Run = launch.outcome(scheduled)
    if "TensorBoard is not installed" in writing.log(writing.workers[0]):
        raise HarnessError(f"{launch.engine.python}: lacks tensorboard, which a callback needs")
    logs = Path(writing.flags["model-dir"]) / "logs"
    reading = alone(launch, "read_event_files")
    flags = {**NOT_TAKEN, "logs": logs}
    return Continued(writing, complete(launch, reading, backend="none", jobs=(), flags=flags))


@dataclass(frozen=True)
class Remeshed:
    """Three runs on one model directory, each on a mesh of its own; each does an epoch more.

    `reference` is one process on the same work as the first.
    """

    sharded: Run
    smaller: Run
    larger: Run
    reference: Run


def remeshed(launch: Launch) -> Remeshed:
    """`large_batch`, from the same start, with weights in shards; then replicated on two devices,
    then on four, each from the checkpoint of the one before.
    """
    pair: Compared = launch.outcome(large_batch)
    directory = launch.directory / "model"
    sharding = replace(
        launch.case.trainer,
        name="dtensor_model_parallel",
        path=str(PROGRAMS / "dtensor_model_parallel.py"),
    )
    epochs, batch = int(pair.run.flags["epochs"]), int(pair.run.flags["batch-size"])

    def more(trainer: Trainer, more_epochs: int, devices: int, replicas: int, **flags: Any) -> Run:
        """On so many devices, with the global batch that the pair has."""
        given: dict[str, Any] = {**pair.run.flags, "evaluate": True, **flags}
        given["epochs"] = epochs + more_epochs
        given["devices"], given["batch-size"] = devices, batch * pair.run.replicas // replicas
        return complete(launch, trainer, flags=given, model_dir=directory)

    start = {"initial-weights": start_of(pair.run)}
    plain = launch.case.trainer
    return Remeshed(
        more(sharding, 0, 4, 2, export=launch.directory / "sharded", **start),
        more(plain, 1, 2, 2),
        more(plain, 2, 4, 4, export=launch.directory / "replicated"),
        pair.reference,
    )


# DTensor combines all-reduces by default, and moves them past reads of what they are assigned to.
APART = {"DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION": "0"}


def read_after_assign(launch: Launch) -> Run:
    """A step on all devices assigns reduced gradients to variables and reads them again."""
    return _read_after_assign(launch, {})


def read_after_assign_apart(launch: Launch) -> Run:
    """The same without the combination of all-reduces."""
    return _read_after_assign(launch, APART)


def _read_after_assign(launch: Launch, env: dict[str, str]) -> Run:
    trainer = program(launch, "dtensor_read_after_assign", flags=("devices",))
    return complete(launch, trainer, flags=NOT_TAKEN, env=env)


def keras_dtensor_optimizer(launch: Launch) -> Compared:
    """`large_batch`, from the same start, with Keras' own optimizer for DTensor."""
    return _keras_dtensor_optimizer(launch, {})


def keras_dtensor_optimizer_apart(launch: Launch) -> Compared:
    """The same without the combination of all-reduces."""
    return _keras_dtensor_optimizer(launch, APART)


def _keras_dtensor_optimizer(launch: Launch, env: dict[str, str]) -> Compared:
    pair: Compared = launch.outcome(large_batch)
    name = "dtensor_keras_optimizer"
    trainer = replace(launch.case.trainer, name=name, path=str(PROGRAMS / f"{name}.py"))
    flags = {**pair.run.flags, "initial-weights": start_of(pair.run)}
    return Compared(complete(launch, trainer, flags=flags, env=env), pair.reference)


def loaded_signature(launch: Launch) -> Continued:
    """A saved model without Keras, used by a process that knows nothing of how it was trained."""
    return _loaded_signature(launch, launch.outcome(healthy))


def loaded_remeshed_signature(launch: Launch) -> Continued:
    """The same of the last of `remeshed`."""
    return _loaded_signature(launch, launch.outcome(remeshed).larger)


def _loaded_signature(launch: Launch, exporting: Run) -> Continued:
    chief = exporting.workers[0]
    flags = {
        "seed": None,
        "data": exporting.flags["data"],
        "export": exporting.of("exported", chief)[-1]["path"],
    }
    loading = alone(launch, "load_signature")
    return Continued(exporting, complete(launch, loading, backend="none", jobs=(), flags=flags))
