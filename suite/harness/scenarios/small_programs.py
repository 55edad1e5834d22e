"""Define the scenarios of small programs (suite/programs), for promises that no trainer covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness.cluster.launch_spec import as_flags
from suite.harness.core.errors import NotExamined, Unsupported
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared, Continued
from suite.harness.scenarios.base import (
    FEW,
    PROGRAMS,
    TEST,
    TRAIN,
    Launch,
    complete,
    model_of,
    part_of_data,
    program,
    single,
    work,
)
from suite.harness.scenarios.crashes import PREEMPTIBLE, preemption
from suite.harness.scenarios.fault_free import (
    changed_plan,
    healthy,
    large_batch,
    scheduled,
    start_of,
)

# Flags that every trainer gets and that a program with its own parser does not know.
NOT_TAKEN = {"data": None, "seed": None}
RUNS = 500_000  # of a session; with TensorFlow 2.12 to 2.21 one of the first 200,000 failed


def alone(launch: Launch, name: str, **changes: Any) -> Trainer:
    """Return a program that is one process outside a cluster."""
    alone = {"jobs": (), "role": "none", "backends": ("none",), "services": ()}
    return program(launch, name, **alone, **changes)


def complete_alone(launch: Launch, name: str, flags: dict[str, Any]) -> Run:
    """Run a program of one process outside a cluster to its end."""
    return complete(launch, alone(launch, name), backend="none", jobs=(), flags=flags)


def evaluate_signature(launch: Launch, export: str | Path, data: str | Path) -> Run:
    """Evaluate a SavedModel by its signature, in one process."""
    return complete_alone(launch, "load_signature", {**NOT_TAKEN, "data": data, "export": export})


def around(launch: Launch, name: str, own: Mapping[str, Any], **changes: Any) -> Trainer:
    """Return the case's user program, run by the program `name`, which takes the flags `own`.

    Raise NotExamined for a module or a script, which no other program can run.
    """
    row = launch.case.trainer
    if row.module or not row.python:
        raise NotExamined("name the file of its Python program: program = ...")
    escaped = [flag.replace("{", "{{").replace("}", "}}") for flag in as_flags(own)]
    arguments = (*escaped, "--", *(row.arguments or ()))
    return program(launch, name, flags=row.flags, arguments=arguments, **changes)


def finished(launch: Launch, trainer: Trainer, **how: Any) -> Run:
    """Start all tasks and wait for the end, successful or not."""
    with launch(trainer, **how) as cluster:
        cluster.start()
        return cluster.finish()


def enough_files(launch: Launch) -> Run:
    """Read files under AutoShardPolicy.FILE, two for each worker."""
    return _files(launch, per_worker=2)


def too_few_files(launch: Launch) -> Run:
    """Read files under AutoShardPolicy.FILE, one fewer than there are workers."""
    return _files(launch, per_worker=0)


def _files(launch: Launch, per_worker: int) -> Run:
    trainer = program(launch, "autoshard_file")
    workers = len(launch.engine.topology(trainer).workers)
    files = per_worker * workers or workers - 1
    flags = {**NOT_TAKEN, "files": files, "records": 32, "steps": 8 * per_worker or 1}
    return finished(launch, trainer, flags=flags, model_dir=launch.directory / "files")


def pass_by_default(launch: Launch) -> Run:
    """Make one pass over in-memory examples, not a multiple of the batch, under AUTO."""
    return _one_pass(launch, "auto")


def pass_by_data(launch: Launch) -> Run:
    """Make the same pass under AutoShardPolicy.DATA."""
    return _one_pass(launch, "data")


def pass_by_function(launch: Launch) -> Run:
    """Make the same pass by distribute_datasets_from_function; each worker reads its own share."""
    return _one_pass(launch, "function")


def pass_without_shards(launch: Launch) -> Run:
    """Make the same pass under AutoShardPolicy.OFF."""
    return _one_pass(launch, "off")


def _one_pass(launch: Launch, way: str) -> Run:
    workers, batch = len(launch.engine.topology(launch.case.trainer).workers), 8
    # Six whole global batches, then one example for each worker except the last.
    examples = 6 * batch * workers + max(1, workers - 1)
    flags = {**NOT_TAKEN, "way": way, "examples": examples, "batch-size": batch}
    return complete(launch, program(launch, "one_pass"), flags=flags)


def built_outside_scope(launch: Launch) -> Run:
    """Build a model outside the strategy's scope, and compile it inside."""
    return _scope(launch, build="outside", compile="inside")


def all_outside_scope(launch: Launch) -> Run:
    """Build and compile a model outside the strategy's scope."""
    return _scope(launch, build="outside", compile="outside")


def inside_scope(launch: Launch) -> Run:
    """Build and compile the same model inside the scope."""
    return _scope(launch, build="inside", compile="inside")


def _scope(launch: Launch, **where: str) -> Run:
    flags = {**NOT_TAKEN, **where}
    return finished(launch, program(launch, "built_outside_scope"), flags=flags)


def sigterm_handler(launch: Launch) -> Run:
    """Send SIGTERM to a program with a handler of its own, before and after the strategy exists."""
    return complete(launch, program(launch, "sigterm_handler"), flags=NOT_TAKEN)


def packed_by_the_call(launch: Launch) -> Run:
    """All-reduce several tensors, with the bytes per pack given in each call."""
    return _packed(launch, "call")


def packed_by_the_strategy(launch: Launch) -> Run:
    """All-reduce the same tensors, with the bytes per pack set in the constructor only."""
    return _packed(launch, "strategy")


def _packed(launch: Launch, options_by: str) -> Run:
    tensors, each_bytes = 4, 4096
    how = {"tensors": tensors, "sizes": tensors * each_bytes, "bytes-per-pack": each_bytes}
    flags = {**NOT_TAKEN, **how, "options-by": options_by, "at-least": 1, "at-most": 1}
    trainer = program(launch, "collectives", flags=("backend",))
    return complete(launch, trainer, flags=flags)


def preempted_where_keras_heeds_it(launch: Launch) -> Compared:
    """Run `preempted` with `fit`, on a platform that Keras takes for one that gives notice."""
    flags = launch.case.trainer.flags
    return preemption(launch, program(launch, "keras_preemption", flags=flags), **PREEMPTIBLE)


def local_server(launch: Launch) -> Run:
    """Start a local server and use it in its process, then by its address from another process.

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


def many_runs(launch: Launch) -> Run:
    """Run a step many times in one session on a local server.

    Unsupported without namespaces: the server picks its port.
    """
    launch.engine.network.check_own_ports("create_local_server")
    return complete_alone(launch, "many_runs", {**NOT_TAKEN, "runs": RUNS})


def model_checkpoint(launch: Launch) -> Continued:
    """Run the same program with ModelCheckpoint twice, in one directory."""
    trainer = program(launch, "model_checkpoint")

    def once() -> Run:
        data = part_of_data(launch, TRAIN, TEST)
        return complete(launch, trainer, flags={"data": data}, model_dir=launch.directory / "model")

    return Continued(once(), once())


def shared_backup(launch: Launch) -> Continued:
    """Interrupt and rerun BackupAndRestore in a directory to which another manager saves."""
    return _backup(launch, inside=True)


def separate_backup(launch: Launch) -> Continued:
    """Run `shared_backup` with a directory for each manager, as the document advises."""
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
    """Feed fresh and stale gradients of known sizes to SyncReplicasOptimizer, in turn."""
    flags = {**NOT_TAKEN, "replicas-to-aggregate": 2}
    return finished(launch, alone(launch, "aggregates"), backend="none", jobs=(), flags=flags)


def side_evaluator(launch: Launch) -> Compared:
    """Evaluate checkpoints of the cluster in a task outside it."""
    return _with_evaluator(launch, {})


def sidecar_evaluator(launch: Launch) -> Compared:
    """Evaluate checkpoints of the cluster with Keras' SidecarEvaluator."""
    return _with_evaluator(launch, {"sidecar": True})


def _with_evaluator(launch: Launch, how: dict[str, Any]) -> Compared:
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
    """Run the Estimator's trainer with eager execution left on."""
    trainer = program(launch, "estimator_eager", flags=launch.case.trainer.flags, observed=True)
    flags = work(launch, trainer, epochs=1, steps_per_epoch=FEW)
    return finished(launch, trainer, flags=flags)


def estimator_from_keras(launch: Launch) -> Run:
    """Train an Estimator made from a compiled Keras model under the strategy."""
    flags = launch.case.trainer.flags
    trainer = program(launch, "estimator_from_keras", flags=flags, observed=True)
    flags = work(launch, trainer, epochs=2, steps_per_epoch=FEW, learning_rate=0.1)
    return complete(launch, trainer, flags=flags, model_dir=launch.directory / "model")


def estimator_predictions(launch: Launch) -> Run:
    """Train briefly in one process, then evaluate and predict in every available way."""
    trainer = alone(launch, "estimator_predict", flags=single(launch.case.trainer).flags)
    flags = work(launch, trainer, epochs=1, steps_per_epoch=FEW)
    directory = launch.directory / "model"
    return complete(launch, trainer, backend="none", flags=flags, model_dir=directory)


def estimator_api(launch: Launch) -> Run:
    """Look up tf.estimator in one process."""
    return finished(launch, alone(launch, "estimator_api"), backend="none", flags=NOT_TAKEN)


def loaded_export(launch: Launch) -> Continued:
    """Load the saved model of the healthy run's chief in one process, evaluate it and train on.

    If the run had several devices, the model is also loaded in a strategy's scope. If the run kept
    its checkpoints, the last one is loaded too.
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
    return Continued(exporting, complete_alone(launch, "load_export", flags))


def event_files(launch: Launch) -> Continued:
    """Read the event files that the callbacks of `scheduled` wrote for TensorBoard.

    Raise NotExamined if the tasks' interpreter has no TensorBoard; TensorFlow installed it until
    2.20.
    """
    writing: Run = launch.outcome(scheduled)
    if "TensorBoard is not installed" in writing.log(writing.workers[0]):
        raise NotExamined(
            "the callback needs TensorBoard, which TensorFlow installs up to 2.20 only: "
            "pip install tensorboard"
        )
    logs = Path(writing.flags["model-dir"]) / "logs"
    flags = {**NOT_TAKEN, "logs": logs}
    return Continued(writing, complete_alone(launch, "read_event_files", flags))


@dataclass(frozen=True)
class Remeshed:
    """Three runs in one model directory, each with its own mesh and one more epoch.

    `reference` is one process on the same work as the first.
    """

    sharded: Run
    smaller: Run
    larger: Run
    reference: Run


def remeshed(launch: Launch) -> Remeshed:
    """Run `large_batch` from the same start with sharded weights, then on two other meshes.

    The weights are then replicated on two devices, and then on four. Each run starts from the
    checkpoint of the one before.
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
        """Run on that many devices, with the global batch of the pair."""
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


# By default DTensor combines all-reduces, and moves them past reads of the variables that they are
# assigned to.
APART = {"DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION": "0"}


def read_after_assign(launch: Launch) -> Run:
    """Assign reduced gradients to variables on all devices, and read them back in one step."""
    return _read_after_assign(launch, {})


def read_after_assign_apart(launch: Launch) -> Run:
    """Run `read_after_assign` without the combination of all-reduces."""
    return _read_after_assign(launch, APART)


def _read_after_assign(launch: Launch, env: dict[str, str]) -> Run:
    trainer = program(launch, "dtensor_read_after_assign", flags=("devices",))
    return complete(launch, trainer, flags=NOT_TAKEN, env=env)


def keras_dtensor_optimizer(launch: Launch) -> Compared:
    """Run `large_batch`, from the same start, with Keras' own optimizer for DTensor."""
    return _keras_dtensor_optimizer(launch, {})


def keras_dtensor_optimizer_apart(launch: Launch) -> Compared:
    """Run `keras_dtensor_optimizer` without the combination of all-reduces."""
    return _keras_dtensor_optimizer(launch, APART)


def _keras_dtensor_optimizer(launch: Launch, env: dict[str, str]) -> Compared:
    pair: Compared = launch.outcome(large_batch)
    name = "dtensor_keras_optimizer"
    trainer = replace(launch.case.trainer, name=name, path=str(PROGRAMS / f"{name}.py"))
    flags = {**pair.run.flags, "initial-weights": start_of(pair.run)}
    try:
        return Compared(complete(launch, trainer, flags=flags, env=env), pair.reference)
    except Unsupported as error:  # tf_keras, which has them, is not installed
        raise NotExamined(
            f"{error}, and tf_keras is not installed: pip install tf_keras"
        ) from error


def loaded_signature(launch: Launch) -> Continued:
    """Load a saved model without Keras, in a process that does not know how it was trained."""
    return _loaded_signature(launch, launch.outcome(healthy))


def loaded_remeshed_signature(launch: Launch) -> Continued:
    """Run `loaded_signature` on the last run of `remeshed`."""
    return _loaded_signature(launch, launch.outcome(remeshed).larger)


def _loaded_signature(launch: Launch, exporting: Run) -> Continued:
    path = exporting.of("exported", exporting.workers[0])[-1]["path"]
    return Continued(exporting, evaluate_signature(launch, path, exporting.flags["data"]))
