"""Scenarios of small programs, for promises that no trainer shows in passing (suite/programs)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reference_trainers import Trainer
from suite.harness.process import ROOT
from suite.harness.run import Run
from suite.harness.scenarios import (
    TEST,
    TRAIN,
    Compared,
    Continued,
    Launch,
    changed_plan,
    complete,
    part_of_data,
    work,
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


def local_server(launch: Launch) -> Run:
    """A process starts a local server and uses it; then another process uses it by its address."""
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


def side_evaluator(launch: Launch) -> Compared:
    """A task beside the cluster waits for its checkpoints and evaluates them."""
    directory = launch.directory / "model"
    flags = work(launch, epochs=1, steps_per_epoch=10, evaluate=True)
    watcher = alone(launch, "side_evaluator")
    until = flags["epochs"] * flags["steps-per-epoch"]
    with launch(
        watcher, flags={"data": flags["data"], "until-step": until}, model_dir=directory
    ) as evaluator:
        evaluator.start()
        run = complete(launch, flags=flags, model_dir=directory)
        return Compared(run, evaluator.complete())


def loaded_export(launch: Launch, exporting: Run) -> Continued:
    """The chief's saved model of a run, loaded by one process, evaluated and trained on."""
    path = exporting.of("exported", exporting.workers[0])[-1]["path"]
    flags = {"data": exporting.flags["data"], "export": path}
    loading = alone(launch, "load_export")
    return Continued(exporting, complete(launch, loading, backend="none", jobs=(), flags=flags))
