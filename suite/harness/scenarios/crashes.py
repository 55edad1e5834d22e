"""Define the scenarios in which tasks are killed, stopped or preempted, and restarted."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from reference_trainers import Trainer
from suite.harness.cluster.cluster import Cluster
from suite.harness.core.errors import CheckFailed, NotExamined, Unsupported
from suite.harness.core.history import Event, Run
from suite.harness.core.outcomes import Compared
from suite.harness.scenarios.base import (
    FEW,
    Launch,
    coordinated,
    endless_work,
    give_time,
    give_time_to_end,
    preemptible,
    program,
    quiet_s,
    too_short,
    trained,
    wait_all_step,
    wait_started,
    wait_training,
    work,
)
from suite.harness.scenarios.fault_free import healthy

# Steps per epoch of runs that are interrupted in the second epoch, and the step within it. The
# target pauses at that step until its fault is injected; peers continue until they need the target.
STEPS = 20
INTO_EPOCH = 2
INTERRUPTED = "interrupted"  # name of its model directory
AS_INTERRUPTED = "as-interrupted"  # copy of that directory, from before the restart


# --- synchronous workers --------------------------------------------------------------------------


EPOCHS = 3


def undisturbed(launch: Launch) -> Run:
    """Run the work of the interrupted scenarios without an interruption.

    Batch k of epoch e depends on (seed, e, k) only.
    """
    flags = work_in_epochs(launch, order="by-epoch")
    return trained(launch, flags=flags, model_dir=launch.directory / "undisturbed")


def interrupted(launch: Launch) -> Compared:
    """Kill a worker within an epoch, then restart all tasks, the killed one last.

    The reference is the same training without interruption. AS_INTERRUPTED has what had been saved.
    """
    flags = work_in_epochs(launch, order="by-epoch")
    with _interrupted(launch, flags, quiet_s(launch), keep=AS_INTERRUPTED) as cluster:
        return Compared(cluster.complete(), launch.outcome(undisturbed))


def interrupted_between_saves(launch: Launch) -> Compared:
    """Run `interrupted` with saves within the epoch; kill between the second and the third save."""
    every = work_in_epochs(launch)["steps-per-epoch"] // 4
    flags = work_in_epochs(launch, order="by-epoch", save_every=every)
    with _interrupted(launch, flags) as cluster:
        return Compared(cluster.complete(), launch.outcome(undisturbed))


def interrupted_while_saving(launch: Launch) -> Compared:
    """Run `interrupted` in the middle of overwriting a backup, as Keras 3 does.

    The write is too short to hit with a kill. The kill comes at another time, and the file is cut
    before the restart. Raise CheckFailed if the restart refuses what is left.
    """
    flags = work_in_epochs(launch, order="by-epoch")
    directory = launch.directory / INTERRUPTED
    with launch(flags=flags, model_dir=directory) as cluster:
        # In the third epoch, after the second backup.
        at_step = kill_at(flags) + flags["steps-per-epoch"]
        start_until(cluster, cluster.workers[0], at_step)
        kill(cluster, cluster.workers[0])
        for path in directory.glob("backup/*.h5"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        cluster.start()
        try:
            run = cluster.complete(may_refuse=True)
        except Unsupported as refused:
            raise CheckFailed(f"the restart fails: {refused}") from refused
        return Compared(run, launch.outcome(undisturbed))


interrupted_while_saving.means = lambda case: case.keras == "keras3"  # type: ignore[attr-defined]


def preempted(launch: Launch) -> Compared:
    """Send SIGTERM to a worker within an epoch. Restart all tasks after all have exited.

    A program that does so is another than the trainer of its document.
    """
    row = launch.case.trainer
    trainer = program(launch, preemptible(row), flags=row.flags)
    return preemption(launch, trainer, **(PREEMPTIBLE if row.fit else {}))


PREEMPTIBLE = {"preemption": True}  # flag of programs that otherwise heed no notice


def preemption(launch: Launch, trainer: Trainer, **flags: bool) -> Compared:
    """Run `preempted` with that program; the reference is the case's own trainer."""
    given = work_in_epochs(launch, order="by-epoch", **flags)
    with launch(trainer, flags=given, model_dir=launch.directory / INTERRUPTED) as cluster:
        target = cluster.workers[-1]
        start_until(cluster, target, kill_at(given))
        cluster.signal(target, signal.SIGTERM, fault="sigterm")
        cluster.let_go(target)
        end_of_peers(launch, cluster, list(cluster.workers))
        cluster.start()
        return Compared(cluster.complete(), launch.outcome(undisturbed))


def interrupted_as_documented(launch: Launch) -> Compared:
    """Run `interrupted` with the document's own data set, which starts over after a restart."""
    flags = work_in_epochs(launch, epochs=2, order="document")
    reference = trained(launch, flags=flags, model_dir=launch.directory / "undisturbed")
    with _interrupted(launch, flags) as cluster:
        return Compared(cluster.complete(), reference)


def work_in_epochs(launch: Launch, **flags: Any) -> dict[str, Any]:
    return work(
        launch, **{"epochs": EPOCHS, "steps_per_epoch": STEPS, "optimizer": "momentum", **flags}
    )


def kill_at(flags: Mapping[str, Any]) -> int:
    """Return the step of the second epoch at which a run with these flags is interrupted."""
    every = flags.get("save-every")
    return flags["steps-per-epoch"] + (2 * every + 1 if every else INTO_EPOCH)


@contextlib.contextmanager
def _interrupted(
    launch: Launch, flags: dict[str, Any], before_last_s: float = 0.0, keep: str = ""
) -> Iterator[Cluster]:
    """Yield a cluster that was interrupted and restarted.

    The killed worker restarts `before_last_s` after its peers, or once one of them makes a step.
    `keep` names a copy of the model directory from between interruption and restart.
    """
    directory = launch.directory / INTERRUPTED
    with launch(flags=flags, model_dir=directory) as cluster:
        *survivors, lost = cluster.workers
        start_until(cluster, lost, kill_at(flags))
        kill(cluster, lost)
        end_of_peers(launch, cluster, survivors)
        if keep:
            shutil.copytree(directory, launch.directory / keep)
        if survivors:
            cluster.start(*survivors)
            wait_started(cluster, survivors, attempt=1)
            give_time(cluster, before_last_s, lambda run: run.of("step", attempt=1))
        cluster.start(lost)
        yield cluster


def restarted_after_save(launch: Launch) -> Compared:
    """Kill the last worker of a user's program after its first save; restart all tasks.

    The reference is the run without faults, which shows after which step the chief saves first.
    """
    reference: Run = launch.outcome(healthy)
    saves = [e["global_step"] for e in reference.of("checkpoint_saved", reference.drivers[0])]
    last = min(e["global_step"] for e in reference.of("finished"))
    step = min((s for s in saves if s), default=last) + 1
    if step > last:
        raise NotExamined("it saves no checkpoint before its last step")
    with launch(flags=work(launch), model_dir=launch.directory / INTERRUPTED) as cluster:
        *peers, lost = cluster.workers
        start_until(cluster, lost, step)
        kill(cluster, lost)
        end_of_peers(launch, cluster, peers)
        cluster.start()
        return Compared(cluster.finish(), reference)


def chief_lost(launch: Launch) -> Run:
    """Kill the chief while it trains, and record the reaction of its peers."""
    with launch(flags=endless_work(launch)) as cluster:
        lost, *survivors = cluster.workers
        start_until(cluster, lost, FEW)
        kill(cluster, lost)
        end_of_peers(launch, cluster, survivors)
        return cluster.run()


def worker_frozen(launch: Launch) -> Run:
    """Stop a worker with SIGSTOP: its connections stay open, but it sends nothing."""
    with launch(flags=endless_work(launch)) as cluster:
        *survivors, lost = cluster.workers
        start_until(cluster, lost, FEW)
        cluster.signal(lost, signal.SIGSTOP, fault="sigstop")
        end_of_peers(launch, cluster, survivors)
        return cluster.run()


def start_until(cluster: Cluster, task: str, step: int) -> None:
    """Start all tasks and wait until `task` pauses after `step`."""
    cluster.hold(task, "step", step)
    cluster.start()
    wait_training(cluster, "step", task, where=lambda e: e["global_step"] >= step)


def kill(cluster: Cluster, task: str) -> None:
    cluster.signal(task, signal.SIGKILL, fault="sigkill")
    cluster.wait_exit(task)


def end_of_peers(launch: Launch, cluster: Cluster, survivors: list[str]) -> None:
    """Give the peers time to detect the loss, and kill those that hang."""
    give_time_to_end(cluster, survivors, launch.engine.deadlines.detect_s)
    for task in set(survivors) & set(cluster.alive()):
        cluster.signal(task, signal.SIGKILL)
        cluster.wait_exit(task)


def end_all(cluster: Cluster) -> None:
    """Kill all tasks that are alive, so that all can be restarted."""
    for task in cluster.alive():
        cluster.signal(task, signal.SIGKILL)
    cluster.wait_exit(*cluster.tasks)


# --- parameter servers ---------------------------------------------------------------------------

# Steps between two saves: enough that a fault hits between them. A step of the model that a
# coordinator trains takes longer.
SAVE_EVERY, SAVE_EVERY_COORDINATED = 100, 40


def saving(launch: Launch) -> Mapping[str, Any]:
    often = coordinated(launch.case.trainer)
    every = SAVE_EVERY_COORDINATED if often else SAVE_EVERY
    flags = endless_work(launch, epoch_steps=every, save_every=every)
    return {"flags": flags, "model_dir": launch.directory / "model"}


def asynchronous_worker_lost(launch: Launch) -> Run:
    """Kill a worker of parameter servers, and restart it after its peers have continued."""
    with launch(**saving(launch)) as cluster:
        *survivors, lost = cluster.workers
        start_and_train(launch, cluster)
        _kill_and_watch(launch, cluster, lost, survivors)
        back_s = _come_back(launch, cluster, lost)
        _give_time_to_save(launch, cluster, back_s)
        return cluster.run()


def fit_worker_lost(launch: Launch) -> Run:
    """Kill a worker of a coordinator that reports epochs only, and restart it."""
    with launch(flags=endless_work(launch)) as cluster:
        start_and_train(launch, cluster)
        lost = cluster.workers[-1]
        cluster.signal(lost, signal.SIGKILL, fault="sigkill")
        died_s = cluster.wait_exit(lost)[lost].time_s
        _let_all_go(cluster)
        _drivers_go_on(launch, cluster, died_s)
        _must_go_on(launch, cluster)
        cluster.start(lost)
        back = cluster.wait_for("started", lost, attempt=1)
        _drivers_go_on(launch, cluster, back.time_s)
        return cluster.run()


def _drivers_go_on(launch: Launch, cluster: Cluster, since_s: float) -> None:
    """Give the drivers time to report a few steps, or to exit."""

    def all_go_on_or_end(run: Run) -> bool:
        return all(len(run.steps_of(d, since_s)) >= FEW or run.exit_of(d) for d in run.drivers)

    give_time(cluster, launch.engine.deadlines.step_s, all_go_on_or_end)


def aggregated_worker_lost(launch: Launch) -> Run:
    """Stop a worker whose gradients its peers need, kill it after a while, and restart it.

    A worker killed at once might die between the delivery of a gradient and the receipt of the
    token for the next one. Its peers would then continue with that token. A stopped worker takes
    it.
    """
    with launch(flags=endless_work(launch)) as cluster:
        *survivors, lost = cluster.workers
        start_and_train(launch, cluster)
        cluster.signal(lost, signal.SIGSTOP, fault="sigstop")
        _let_all_go(cluster)
        _watch(launch, cluster, survivors, cluster.run().of("fault_started")[0].time_s)
        _kill_and_watch(launch, cluster, lost, survivors)
        _come_back(launch, cluster, lost)
        return cluster.run()


def asynchronous_chief_lost(launch: Launch) -> Run:
    """Kill the chief of a parameter server cluster after it has saved, and restart it."""
    with launch(**saving(launch)) as cluster:
        lost, *survivors = cluster.drivers
        start_and_train(launch, cluster, saved=True)
        _kill_and_watch(launch, cluster, lost, survivors)
        _come_back(launch, cluster, lost)
        return cluster.run()


def server_lost(launch: Launch) -> Run:
    """Kill a parameter server after a save, let the drivers react, and restart all tasks."""
    with launch(**saving(launch)) as cluster:
        start_and_train(launch, cluster, saved=True)
        lost = next(task for task in cluster.tasks if task.startswith("ps/"))
        cluster.signal(lost, signal.SIGKILL, fault="sigkill")
        cluster.wait_exit(lost)
        _let_all_go(cluster)
        # The documents promise an error to a coordinator. Of the workers, some fail at once and
        # some wait forever.
        promised = coordinated(launch.case.trainer)
        patience_s = launch.engine.deadlines.detect_s if promised else quiet_s(launch)
        give_time_to_end(cluster, cluster.drivers, patience_s)
        end_all(cluster)
        cluster.start()
        wait_all_step(cluster, attempt=1)
        return cluster.run()


def start_and_train(launch: Launch, cluster: Cluster, saved: bool = False) -> None:
    """Start all tasks and wait until all drivers train, and, if `saved`, the chief has saved.

    A user's program may be short, so its drivers pause there until `_let_all_go`.
    """
    if not launch.case.trainer.of_user:
        cluster.start()
        if saved:
            wait_saved(cluster)
        # A coordinator that has saved trains; a fault must follow its save before the next one.
        if not (saved and len(cluster.drivers) == 1):
            wait_all_step(cluster)
        return
    launch.outcome(healthy)  # now, because no task may wait for it later
    progress = launch.case.trainer.progress
    chief, *others = cluster.drivers
    points: dict[str, tuple[str, int]] = dict.fromkeys(others, (progress, FEW))
    points[chief] = ("checkpoint_saved", saving_step(cluster)) if saved else (progress, FEW)
    for task, (event, step) in points.items():
        cluster.hold(task, event, step)
    cluster.start()
    for task, (event, step) in points.items():
        wait_training(cluster, event, task, where=lambda e, step=step: e["global_step"] >= step)


def _let_all_go(cluster: Cluster) -> None:
    for task in cluster.drivers:
        cluster.let_go(task)


def _must_go_on(launch: Launch, cluster: Cluster) -> None:
    """Raise NotExamined if a driver of a user's program has made all steps of its usual run."""
    if not launch.case.trainer.of_user:
        return
    run, usual = cluster.run(), launch.outcome(healthy)
    for task in run.drivers:
        whole = [e["global_step"] for e in usual.of("finished", task)]
        if any([e["global_step"]] >= whole for e in run.of("finished", task)):
            raise NotExamined(too_short(run))


def _come_back(launch: Launch, cluster: Cluster, lost: str) -> float:
    """Restart the task and return the time of its start. A check judges whether it trains again."""
    _must_go_on(launch, cluster)
    cluster.start(lost)
    back_s = cluster.wait_for("started", lost, attempt=1).time_s  # no verdict before that

    def steps_or_ended(run: Run) -> object:
        return len(run.steps_of(lost, back_s)) >= FEW or run.exit_of(lost, attempt=1)

    give_time(cluster, launch.engine.deadlines.step_s, steps_or_ended)
    return back_s


def _give_time_to_save(launch: Launch, cluster: Cluster, after_s: float) -> None:
    """Wait until a checkpoint has been saved after that time."""

    def saved(run: Run) -> object:
        return [e for e in run.of("checkpoint_saved") if e.time_s > after_s]

    give_time(cluster, launch.engine.deadlines.step_s, saved)


def wait_saved(cluster: Cluster) -> Event:
    """Wait for a save later than the one that the Supervisor makes at once."""
    further = saving_step(cluster)
    return wait_training(cluster, "checkpoint_saved", where=lambda e: e["global_step"] >= further)


def saving_step(cluster: Cluster) -> int:
    return cluster.plan.flags.get("save-every", 1)  # with fit: the save of the first epoch


def _kill_and_watch(launch: Launch, cluster: Cluster, lost: str, survivors: list[str]) -> None:
    cluster.signal(lost, signal.SIGKILL, fault="sigkill")
    died_s = cluster.wait_exit(lost)[lost].time_s
    _let_all_go(cluster)
    _watch(launch, cluster, survivors, died_s)


def _watch(launch: Launch, cluster: Cluster, survivors: list[str], since_s: float) -> None:
    """Give survivors time to continue; less if each step needs all workers' gradients."""
    aggregates = launch.case.trainer.aggregates

    def all_go_on(run: Run) -> bool:
        return all(len(run.steps_of(task, since_s)) >= FEW for task in survivors)

    within_s = quiet_s(launch) if aggregates else launch.engine.deadlines.detect_s
    give_time(cluster, within_s, all_go_on)
