"""Check the effect of a fault on its peers, at any injection point; see suite/harness/faults."""

from __future__ import annotations

from itertools import pairwise

from suite.harness.checks.assertions import (
    check,
    equal,
    last_attempt,
    only,
    requested_steps,
    require,
    some,
    weights,
)
from suite.harness.checks.parameter_servers import GOING_ON
from suite.harness.checks.restart import last_weights
from suite.harness.core.history import Event, Run
from suite.harness.metrics import recovery


def _fault_and_others(run: Run) -> tuple[Event, list[str]]:
    fault = some("fault", run.of("fault_started"))[0]
    return fault, [task for task in run.drivers if task != fault.task]


@check
def peers_continue(run: Run, *, harmless: bool = False) -> None:
    """Require that peers do not fail and make steps between the target's loss and its return.

    `harmless`: the fault ends before a peer has to detect it.
    """
    fault, others = _fault_and_others(run)
    again = [*run.of("spawned", fault.task), *run.of("fault_ended", fault.task)]
    back = sorted(e.time_s for e in again if e.time_s > fault.time_s)
    healed = [e.time_s for e in run.of("fault_ended", fault.task)]
    if harmless:
        back = healed = []
    ended = run.exit_of(fault.task, fault.attempt)
    # A signal takes time, in which fast peers make some steps.
    lost_s = ended.time_s if ended and ended.time_s < min(back, default=0.0) else fault.time_s
    for task in others:
        exited = run.exit_of(task, fault.attempt)
        # Another check judges the time after the fault has ended.
        if exited and (exited["ended_by_harness"] or any(t < exited.time_s for t in healed)):
            exited = None
        code = exited["code"] if exited else 0
        equal(f"exit code of {task} after {fault['fault']} of {fault.task}", code, 0)
        made = [e for e in run.steps_of(task, lost_s) if not back or e.time_s < back[0]]
        require(
            len(made) >= GOING_ON or run.of("finished", task),
            f"{task} made {len(made)} steps after {fault['fault']} of {fault.task}",
        )


@check
def peers_wait(run: Run) -> None:
    """Require that peers neither fail nor make a step until the target is back."""
    fault, others = _fault_and_others(run)
    up = only(f"return of {fault.task}", run.of("started", fault.task, fault.attempt + 1))
    for task in others:
        ended = [e for e in run.of("exited", task, 0) if run.surely_before(e, up)]
        require(not ended, f"{task} ended before {fault.task} was back: {ended}")
        early = [e for e in run.of("step", task) if run.surely_before(e, up)]
        require(not early, f"{task} made {len(early)} steps before {fault.task} was back")


@check
def peers_finish(run: Run, limit_s: float) -> None:
    """Require that peers finish and exit with 0 within the limit after the target is lost."""
    fault, others = _fault_and_others(run)
    for task in others:
        exited = only(f"end of {task}", run.of("exited", task))
        after_s = exited.time_s - fault.time_s
        in_time = not exited["ended_by_harness"] and after_s <= limit_s
        require(in_time, f"{task} had not ended {limit_s:.1f} s after {fault.task}")
        equal(f"exit code of {task}", exited["code"], 0)
        only(f"`finished` of {task}", run.of("finished", task))


@check
def no_premature_success(run: Run) -> None:
    """Require that only the faulted task may exit with 0 before all requested steps are done."""
    fault, _ = _fault_and_others(run)
    target = (fault.task, fault.attempt)
    for exited in run.of("exited"):
        by_itself = exited.task in run.drivers and not exited["ended_by_harness"]
        if not by_itself or exited["code"] != 0 or (exited.task, exited.attempt) == target:
            continue
        done = run.of("finished", exited.task, exited.attempt)
        # Of an observed task that restores its last step and makes none, no step is seen.
        if run.trainer.is_observed:
            done += [e for e in run.of("step", exited.task) if e.time_s < exited.time_s]
        steps = max((e["global_step"] for e in done), default=0)
        require(
            steps >= requested_steps(run),
            f"{exited.task} ended with exit code 0 after step {steps} of {requested_steps(run)}",
        )


@check
def training_resumes(run: Run) -> None:
    """Require that all tasks make steps after the target is restarted or its fault has ended."""
    fault, _ = _fault_and_others(run)
    spawned = run.of("spawned", fault.task, fault.attempt + 1)
    back = some(f"return of {fault.task}", spawned or run.of("fault_ended", fault.task))[-1]
    # A coordinator reports the steps of its workers only in a custom loop.
    reporting = {*run.drivers, *(run.workers if "step" in run.trainer.events else ())}
    for task in sorted(reporting):
        made = run.steps_of(task, back.time_s)
        require(
            len(made) >= GOING_ON,
            f"{task} made {len(made)} steps after {fault.task} was back",
        )


@check
def loses_at_most_one_save_interval(run: Run) -> None:
    """Require that the last save is restored: at most one save interval is repeated."""
    attempt = last_attempt(run, run.drivers[0])
    require(attempt, f"{run.drivers[0]} was never started again")
    interval = run.flags.get("save-every") or _save_interval(run)
    reported = recovery.steps_reported(run)
    lost = recovery.steps_lost(run)
    require(
        0 <= lost <= interval,
        f"{lost} of {reported} reported steps were lost, with a save every {interval} steps",
    )


def _save_interval(run: Run) -> int:
    """Return the steps of an epoch; of a user's program, its longest distance between saves."""
    epoch = int(run.flags["steps-per-epoch"])
    if not run.trainer.of_user:
        return epoch
    saves = run.of("checkpoint_saved", run.drivers[0])
    steps = sorted({0, *(e["global_step"] for e in some("save", saves))})
    return max(epoch, *(later - earlier for earlier, later in pairwise(steps)))


@check
def damage_is_detected(run: Run, reference: Run) -> None:
    """Require that no driver silently builds on a damaged checkpoint.

    A driver may exit with an error, or continue from intact state. In the second case its final
    weights must equal the reference's, bit for bit.
    """
    fault, _ = _fault_and_others(run)
    second = fault.attempt + 1
    for task in run.drivers:
        exited = only(f"second end of {task}", run.of("exited", task, second))
        if exited["code"] != 0:
            continue
        found = only(f"final weights of {task}", weights(run, "final", task, second))
        wanted = last_weights(reference, task)
        equal(f"weights of {task}, which said nothing of the damage", *_digests(found, wanted))


def _digests(*events: Event) -> list[str]:
    return [event["digest"] for event in events]


@check
def smaller_cluster_continues(run: Run, fewer: Run) -> None:
    """Require that a cluster without the lost worker resumes from the last save and trains."""
    # Some trainers do not report saves. These save at the end of each epoch.
    saves = some("save", [*run.of("checkpoint_saved"), *run.of("epoch")])
    saved = max(e["global_step"] for e in saves)
    restored = some(f"`restored` of {fewer.drivers[0]}", fewer.of("restored", fewer.drivers[0]))
    step = restored[0]["global_step"]
    require(step >= saved, f"step {step} was restored; step {saved} had been saved")
    for task in fewer.drivers:
        made = fewer.of(run.trainer.progress, task)
        first = some(f"step of {task} in the smaller cluster", made)[0]["global_step"]
        require(first > step, f"{task} began with step {first}, restored was {step}")
