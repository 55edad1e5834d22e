"""Check loss and restart of synchronous workers: peers fail, the cluster waits, training resumes.

`reference` is the same training, from the same seed, without an interruption.
"""

from __future__ import annotations

import signal
from pathlib import Path

from suite.harness.checks.assertions import (
    check,
    equal,
    last_attempt,
    only,
    require,
    same,
    some,
    weights,
)
from suite.harness.core.error_lines import last_error
from suite.harness.core.errors import CheckFailed
from suite.harness.core.history import Event, Run

PREEMPTED = 42  # TensorFlow's own exit code of a preempted task that has saved
STATE = ("iterations", "digest", "slots_digest")


def _restored(run: Run, task: str) -> Event:
    attempt = last_attempt(run, task)
    require(attempt, f"{task} was never started again")
    return only(f"`restored` of {task}, attempt {attempt}", run.of("restored", task, attempt))


@check
def peers_fail_in_time(run: Run, limit_s: float) -> None:
    """Require that every peer of a lost task fails by itself within the limit, and none hangs.

    A peer fails when it reports its error, or else when it exits. After its report it may take
    longer to exit, but must do so by itself. A program that can write `peer_lost` must write it: an
    exit by another error does not show that the loss was detected.
    """
    fault = some("fault", run.of("fault_started"))[0]
    survivors = [task for task in run.drivers if task != fault.task]
    for task in some("driver that survives", survivors):
        exited = only(f"end of {task}", run.of("exited", task, fault.attempt))
        failed = run.failure_of(task, fault.time_s) or exited
        after_s = failed.time_s - fault.time_s
        what = "the harness's kill" if failed.get("ended_by_harness") else f"`{failed.name}`"
        require(
            after_s <= limit_s and not failed.get("ended_by_harness"),
            f"{task} had not failed {limit_s:.1f} s after {fault.task} was lost ({what} came after"
            f" {after_s:.1f} s)",
        )
        require(
            not exited["ended_by_harness"],
            f"{task} failed {after_s:.1f} s after {fault.task} was lost, and had not left"
            f" {exited.time_s - failed.time_s:.1f} s later",
        )
        equal(f"{task} failed when {fault.task} was lost", exited["code"] != 0, True)
        if failed.name != "peer_lost" and "peer_lost" in run.trainer.events:
            error = last_error(run.log(task, fault.attempt))
            raise CheckFailed(
                f"{task} failed when {fault.task} was lost, but by an error that names no lost peer"
                f" ({error})"
            )


@check
def signal_ends_in_time(run: Run, reference: Run, limit_s: float) -> None:
    """Require that every driver that got a signal to end exits by itself within the limit.

    A driver that makes all the steps of the undisturbed run has ignored the signal.
    """
    asked = {e.task: e for e in some("signal", run.of("fault_started"))}
    for task in asked:
        exits = [e for e in run.of("exited", task) if e.time_s > asked[task].time_s]
        after_s = exits[0].time_s - asked[task].time_s if exits else float("inf")
        killed = not exits or exits[0]["signal"] == signal.SIGKILL
        require(
            after_s <= limit_s and not killed,
            f"{task} ran on for {limit_s:.1f} s after {asked[task]['fault']}, and had to be killed",
        )
        finished = run.of("finished", task)
        whole = [e["steps"] for e in reference.of("finished", task)]
        require(
            not finished or finished[-1]["steps"] not in whole,
            f"{task} trained to its end after {asked[task]['fault']}",
        )


@check
def restarted_cluster_waits(run: Run) -> None:
    """Require that no restarted worker makes a step until the lost worker is back."""
    lost = some("fault", run.of("fault_started"))[0].task
    up = only(f"return of {lost}", run.of("started", lost, last_attempt(run, lost)))
    others = [e for e in run.of("started") if e.attempt == up.attempt and e.task != lost]
    early = [e.task for e in others if run.surely_before(e, up)]
    some(f"worker that was back before {lost}", early)
    steps = [e for e in run.of("step") if e.attempt == up.attempt]
    first = min(some("step after the restart", steps), key=lambda e: e.time_s)
    require(
        not run.surely_before(first, up),
        f"{first.task} made a step {up.time_s - first.time_s:.3f} s before {lost} was back",
    )


@check
def latest_save_is_restored(run: Run) -> None:
    """Require that each driver restores the latest save of the chief and continues from its step.

    Of a program of a user, which may save to several directories: the latest save of any of them.
    """
    leader = run.drivers[0]
    attempt = last_attempt(run, leader)
    saves = [e for e in run.of("checkpoint_saved", leader) if e.attempt < attempt]
    latest = max(e["global_step"] for e in some(f"save of {leader}", saves))
    paths = {e["path"] for e in saves if e["global_step"] == latest}
    for task in run.drivers:
        restored = some(
            f"`restored` of {task} after the restart", run.of("restored", task, attempt)
        )[-1]
        # Steps are those of the optimizer.
        require(
            restored["global_step"] or not latest or restored["path"] not in paths,
            f"{task} restored {Path(restored['path']).name}, which was saved at step {latest}, and "
            "continues at step 0: the checkpoint has no state of the optimizer",
        )
        equal(f"global step that {task} restored", restored["global_step"], latest)
        first = some(f"step of {task} after", run.of("step", task, attempt))[0]["global_step"]
        equal(f"first step of {task} after step {latest} was restored", first, latest + 1)


@check
def restarted_workers_agree(run: Run) -> None:
    """Require that all workers of a restarted cluster begin and end with the same weights."""
    sides = {
        task: [
            (e["when"], e["global_step"], e["digest"])
            for e in some(f"weights of {task}", run.of("weights", task, last_attempt(run, task)))
            if e["when"] in ("initial", "final")
        ]
        for task in run.workers
    }
    same("first and last weights after the restart (when, global step, digest)", sides)


@check
def restarted_run_ends_as_usual(run: Run, reference: Run) -> None:
    """Require that each driver exits with 0 at the global step at which the reference ended."""
    for task in run.drivers:
        attempt = last_attempt(run, task)
        exited = only(f"end of {task}", run.of("exited", task, attempt))
        equal(f"exit code of {task}", exited["code"], 0)
        ends = [
            only(f"`finished` of {task}", side.of("finished", task, last_attempt(side, task)))
            for side in (run, reference)
        ]
        found, wanted = (end["global_step"] for end in ends)
        equal(f"last global step of the restarted {task}", found, wanted)


@check
def resumes_interrupted_epoch(run: Run) -> None:
    """Require that training resumes from the start of the interrupted epoch.

    Steps are counted on from there.
    """
    for task in run.workers:
        restored = _restored(run, task)
        steps_before = run.of("step", task, restored.attempt - 1)
        epochs = some(f"epoch of {task} before", run.of("epoch", task, restored.attempt - 1))
        equal(
            f"global step that {task} restored", restored["global_step"], epochs[-1]["global_step"]
        )
        some(f"step of {task} before", steps_before)
        # Steps of any worker count, since all are synchronous: a worker that hung may not have
        # reported its last steps.
        last = max(e["global_step"] for e in run.of("step", attempt=restored.attempt - 1))
        require(
            last > restored["global_step"],
            f"{task} was not within an epoch when it was interrupted: step {last}",
        )
        after = [e for e in run.of("step", task, restored.attempt) if e.time_s > restored.time_s]
        first = some(f"step of {task} after", after)[0]
        equal(f"{task}'s first step", first["global_step"], restored["global_step"] + 1)


@check
def resumes_at_the_last_save(run: Run) -> None:
    """Require that training resumes from a save within the epoch, at most one interval back."""
    every = run.flags.get("save-every", 0)
    require(every, "nothing was to be saved within an epoch")
    for task in run.workers:
        restored = _restored(run, task)
        before = restored.attempt - 1
        epoch = some(f"epoch of {task} before", run.of("epoch", task, before))[-1]["global_step"]
        last = some(f"step of {task} before", run.of("step", task, before))[-1]["global_step"]
        step = restored["global_step"]
        require(step > epoch, f"{task} went back to step {step}, the end of an epoch ({epoch})")
        require(
            last - step <= every,
            f"{task} had reported step {last} and went back to {step}, "
            f"with a save every {every} steps",
        )
        after = some(f"step of {task} after", run.of("step", task, restored.attempt))[0]
        equal(f"{task}'s first step", after["global_step"], step + 1)


@check
def leaves_after_saving(run: Run) -> None:
    """Require that preempted tasks save at one step, make no further step and exit with PREEMPTED.

    After the restart they continue with the next step: no step is lost or repeated.
    """
    for task in run.drivers:
        exited = only(f"first end of {task}", run.of("exited", task, 0))
        equal(f"exit code of {task}, which was preempted", exited["code"], PREEMPTED)
    saved = {t: [e["global_step"] for e in run.of("preempted", t, 0)] for t in run.drivers}
    (step,) = same("steps at which tasks saved before they left", saved)
    for task in run.drivers:
        last = some(f"step of {task} before", run.of("step", task, 0))[-1]
        equal(f"last step of {task} before it left", last["global_step"], step)
        restored = _restored(run, task)
        equal(f"step that {task} restored", restored["global_step"], step)
        first = some(f"step of {task} after", run.of("step", task, restored.attempt))[0]
        equal(f"{task}'s first step", first["global_step"], step + 1)


@check
def restored_state_equals_uninterrupted(run: Run, reference: Run) -> None:
    """Require that restored weights, slots and iterations equal the reference's, bit for bit."""
    for task in run.workers:
        restored = _restored(run, task)
        wanted = only(
            f"weights of the reference's {task} at step {restored['global_step']}",
            (
                e
                for e in weights(reference, "epoch", task)
                if e["global_step"] == restored["global_step"]
            ),
        )
        start = some(f"initial weights of {task}", weights(reference, "initial", task))[0]
        require(wanted["digest"] != start["digest"], f"{task} had not learned anything by then")
        for key in STATE:
            equal(f"{key} that {task} restored", restored[key], wanted[key])


@check
def partial_epoch_leaves_no_trace(run: Run, reference: Run) -> None:
    """Require that the repeated epoch reports the reference's metrics: no partial state remains."""
    for task in run.workers:
        restored = _restored(run, task)
        again = some(f"epoch of {task} after", run.of("epoch", task, restored.attempt))[0]
        wanted = only(
            f"epoch {again['epoch']} of the reference's {task}",
            (e for e in reference.of("epoch", task) if e["epoch"] == again["epoch"]),
        )
        equal(f"metrics of {task}'s epoch {again['epoch']}", again["metrics"], wanted["metrics"])


def last_weights(reference: Run, task: str) -> Event:
    """Return the weights of the last epoch; of a loop whose epochs are not visible, the final ones.

    The reference may be ended before it reports final ones.
    """
    whens = ("epoch", "final") if reference.trainer.of_user else ("epoch",)
    reports = [e for when in whens for e in weights(reference, when, task)]
    return some(f"epoch of the reference's {task}", reports)[-1]


@check
def final_weights_equal_uninterrupted(run: Run, reference: Run) -> None:
    """Require final weights equal to the reference's, bit for bit.

    This holds where the data depend on seed, epoch and batch only.
    """
    for task in run.workers:
        attempt = last_attempt(run, task)
        found = only(f"final weights of {task}", weights(run, "final", task, attempt))
        wanted = last_weights(reference, task)
        start = some(f"initial weights of {task}", weights(reference, "initial", task))[0]
        require(wanted["digest"] != start["digest"], f"{task} has not learned anything")
        for key in STATE:
            equal(f"final {key} of {task}", found[key], wanted[key])
