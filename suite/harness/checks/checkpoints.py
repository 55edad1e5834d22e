"""Check saving: every worker saves, only the chief's save remains, and it is usable."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import combinations
from pathlib import Path

from suite.harness.checks.assertions import (
    check,
    close,
    equal,
    flag_value,
    last_attempt,
    only,
    requested_steps,
    require,
    same,
    some,
    weights,
)
from suite.harness.core.formats import formats_of
from suite.harness.core.history import Event, Run
from suite.harness.core.paths import remains

SAVED = ("checkpoint_saved", "exported")
BACKUP = "backup"  # directory of Keras' BackupAndRestore
# Patterns of files that TensorFlow writes next to what a program saves.
BOOKKEEPING = ("checkpoint", "graph.pbtxt", "events.out.tfevents.*")


def chief(run: Run) -> str:
    """Return the task that must be the chief. The check `one_chief` verifies that it is."""
    return run.drivers[0]


def _kinds(run: Run) -> list[str]:
    """Return the kinds of save that this trainer makes."""
    kinds = [name for name in SAVED if name in run.trainer.events]
    if run.trainer.of_user:  # which need not make all that the approach can
        kinds = [name for name in kinds if run.of(name)]
    return some("kind of save", kinds)


def _saves(run: Run, name: str) -> dict[str, Event]:
    """Return the last save of every worker."""
    return {task: some(f"{name} event of {task}", run.of(name, task))[-1] for task in run.workers}


@check
def save_paths_distinct(run: Run) -> None:
    """Require that no two workers write to the same path, nor to one below the other's."""
    require(len(run.workers) > 1, "one worker alone shares no path")
    for name in _kinds(run):
        for (one, a), (other, b) in combinations(_saves(run, name).items(), 2):
            first, second = Path(a["path"]), Path(b["path"])
            apart = not first.is_relative_to(second) and not second.is_relative_to(first)
            require(apart, f"{one} and {other} both write {name} to {first} and {second}")


@check
def only_chief_keeps(run: Run) -> None:
    """Require that only the chief's save, at the real path, remains.

    A program of a user may remove that one as well, as BackupAndRestore does at the end of `fit`.
    """
    for name in _kinds(run):
        saves = _saves(run, name)
        remaining = {e["path"] for e in saves.values() if remains(e["path"])}
        own = {saves[chief(run)]["path"]}
        wanted = own & remaining if run.trainer.of_user else own
        equal(f"paths of {name} that remain", remaining, wanted)


@check
def exports_identical(run: Run) -> None:
    """Require that all workers export the same weights, and that these are the trained ones."""
    exported = _saves(run, "exported")
    digest = same("weights in the saved model", {t: e["digest"] for t, e in exported.items()})
    for task in run.workers:
        final = only(f"final weights of {task}", weights(run, "final", task))
        equal(f"weights in the saved model, against {task}'s last", digest, final["digest"])


@check
def checkpoint_kept_is_one(run: Run, then: Run) -> None:
    """Require that a directory holds only the last checkpoint after two runs have saved to it."""
    for which in (run, then):
        some("checkpoint", which.of("checkpoint_saved", chief(which)))
    path = Path(then.of("checkpoint_saved", chief(then))[-1]["path"])
    found = sorted(p.name for p in path.parent.glob("*.index"))
    equal(f"checkpoints in {path.parent}", found, [path.name + ".index"])


@check
def saves_each_format(run: Run, formats: Sequence[str]) -> None:
    """Require that the run has saved in each format that its approach has."""
    equal("formats that were saved", list(formats), formats_of(run.trainer))


@check
def checkpoint_restores(run: Run, then: Run) -> None:
    """Require that the second run starts from the complete checkpoint of the first."""
    saved = some("checkpoint", run.of("checkpoint_saved", chief(run)))[-1]
    final = only(f"final weights of {chief(run)}", weights(run, "final", chief(run)))
    for task in then.drivers:
        restored = only(f"`restored` of {task}", then.of("restored", task))
        equal(f"path that {task} restored", restored["path"], saved["path"])
        for key in ("digest", "slots_digest", "iterations"):
            equal(f"{key} that {task} restored", restored[key], final[key])
        if "step" in then.trainer.events:
            first = some(f"step of {task}", then.of("step", task))[0]["global_step"]
            # A step that aggregates gradients reads the number of updates before its own.
            own = 0 if then.trainer.aggregates else 1
            equal(f"first step of {task}", first, restored["global_step"] + own)


@check
def training_continues(run: Run, then: Run) -> None:
    """Require that the second run trains, from a lower loss than the first run.

    The loss of its first epoch is compared with that of the first run's first epoch.
    """
    for task in then.drivers:
        # Losses of a loop of a user's program are not visible.
        if run.of("epoch", task) or ("epoch" in run.trainer.events and not run.trainer.of_user):
            before = some(f"epoch of {task}", run.of("epoch", task))
            after = some(f"later epoch of {task}", then.of("epoch", task))
            losses = [before[0]["metrics"]["loss"], after[0]["metrics"]["loss"]]
            message = f"loss of {task}'s first epoch, first and later: {losses}"
            require(losses[1] < losses[0], message)
        digests = [e["digest"] for e in some(f"weights of {task}", then.of("weights", task))]
        require(digests[0] != digests[-1], f"{task} changed no weights: {digests}")


@check
def second_run_makes_the_rest(run: Run, then: Run) -> None:
    """Require that the second run makes only the epochs that the first has not made.

    Their numbers go on, and each has the requested steps.
    """
    for task in then.drivers:
        made = some(f"epoch of {task}", run.of("epoch", task))[-1]["epoch"]
        epochs = then.of("epoch", task)
        wanted = list(range(made + 1, flag_value(then, "epochs") + 1))
        equal(f"epochs of {task} in the second run", [e["epoch"] for e in epochs], wanted)
        steps = [flag_value(then, "steps-per-epoch")] * len(wanted)
        equal(f"steps of {task} in these epochs", [e["steps"] for e in epochs], steps)


@check
def saves_first_and_last(run: Run) -> None:
    """Require that the chief saves before the first step and after the last."""
    task = chief(run)
    saved = [e["global_step"] for e in some("checkpoint", run.of("checkpoint_saved", task))]
    equal("step of the first checkpoint", saved[0], 0)
    equal("step of the last checkpoint", saved[-1], requested_steps(run))


@check
def nothing_else_is_left(run: Run) -> None:
    """Require that the model directory has only what was saved in it, and no empty directory.

    TensorFlow keeps files of its own next to what it saves: the list of checkpoints, the graph of a
    session, event files. BackupAndRestore of Keras 2 removes its backup, and leaves its directory.
    """
    directory = Path(flag_value(run, "model-dir"))
    saved = {str(event["path"]) for name in SAVED for event in run.of(name)}
    found = sorted(directory.rglob("*"))
    files = [path for path in found if path.is_file()]
    others = [
        path
        for path in files
        if not any(fnmatch(path.name, pattern) for pattern in BOOKKEEPING)
        and not any(str(path).startswith(prefix) for prefix in saved)
    ]
    folders = [path for path in found if path.is_dir() and path != directory / BACKUP]
    empty = [path for path in folders if not any(path.iterdir())]
    left = [str(path.relative_to(directory)) for path in (*others, *empty)]
    require(files, f"{directory} is empty")
    require(not left, f"{directory} has files or empty directories that nothing saved: {left}")


@check
def last_save_is_of_the_end(run: Run) -> None:
    """Require that the last save is of a step from the requested one on, and is kept.

    An asynchronous worker may make one more step than requested.
    """
    task = chief(run)
    last = some("checkpoint", run.of("checkpoint_saved", task))[-1]
    wanted = requested_steps(run)
    require(
        last["global_step"] >= wanted,
        f"the last checkpoint is of step {last['global_step']}, {wanted} were requested",
    )
    require(remains(last["path"]), f"the last checkpoint is gone: {last['path']}")


@check
def evaluates_the_latest(run: Run) -> None:
    """Require that evaluation restores saved checkpoints, the last one included.

    Each evaluation must report the step of its checkpoint.
    """
    task = chief(run)
    saved = {
        e["path"]: e["global_step"]
        for e in some("checkpoint", run.of("checkpoint_saved", task, last_attempt(run, task)))
    }
    evaluated = some("evaluation", run.of("evaluated"))
    for e in evaluated:
        require(e["path"] in saved, f"{e['path']} was evaluated, the chief saved {sorted(saved)}")
        equal(f"global step of {e['path']}", e["global_step"], saved[e["path"]])
    equal("step of the last evaluation", evaluated[-1]["global_step"], max(saved.values()))


@check
def backup_removed(run: Run) -> None:
    """Require that the backup that training resumed from is deleted after a normal end."""
    directory = Path(flag_value(run, "model-dir")) / "backup"
    used = [e["path"] for e in run.of("restored") if Path(e["path"]).is_relative_to(directory)]
    some(f"use of a backup in {directory}", used)
    left = sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())
    require(not left, f"files left in {directory}: {left}")


@check
def loaded_export_evaluates_same(run: Run, then: Run) -> None:
    """Require equal evaluation of the saved model, loaded in one process without a strategy."""
    _evaluates_same(run, then, "export")


@check
def export_in_scope_evaluates_same(run: Run, then: Run) -> None:
    """Require equal evaluation of the saved model, loaded in a strategy's scope."""
    _evaluates_same(run, then, "export in scope")


@check
def latest_checkpoint_evaluates_same(run: Run, then: Run) -> None:
    """Require equal evaluation of the last checkpoint, loaded into a fresh model."""
    _evaluates_same(run, then, "checkpoint")


def _evaluates_same(run: Run, then: Run, how: str) -> None:
    before = some("evaluation", run.of("evaluated", chief(run)))[-1]["metrics"]
    loaded = [e for e in then.of("evaluated") if e["how"] == how]
    after = only(f"evaluation of the {how}", loaded)["metrics"]
    equal("names of metrics", sorted(after), sorted(before))
    for name, value in before.items():
        # The float32 sum over the examples is taken in another order.
        close(f"{name} of the {how}", after[name], value, 1e-5)


@check
def every_epoch_is_saved(run: Run) -> None:
    """Require one checkpoint for each epoch, named after it, and that all of them remain.

    Backups for a restart are left out.
    """
    task = chief(run)
    epochs = [e["epoch"] for e in some("epoch", run.of("epoch", task))]
    paths = [Path(e["path"]) for e in run.of("checkpoint_saved", task)]
    paths = [path for path in paths if BACKUP not in path.parts]
    names = [path.name.split(".")[0] for path in paths]
    equal("checkpoints", names, [f"ckpt_{epoch}" for epoch in epochs])
    gone = [path.name for path in paths if not remains(str(path))]
    require(not gone, f"checkpoints that are gone: {gone}")
