"""What a fault does to the others, for any fault at any moment; see suite/harness/faults."""

from __future__ import annotations

from suite.harness.checks.assertions import (
    asked_steps,
    check,
    equal,
    last_attempt,
    only,
    require,
    some,
    weights,
)
from suite.harness.checks.parameter_servers import GOING_ON
from suite.harness.core.history import Event, Run
from suite.harness.metrics import recovery


def _fault_and_others(run: Run) -> tuple[Event, list[str]]:
    fault = some("fault", run.of("fault_started"))[0]
    return fault, [task for task in run.drivers if task != fault.task]


@check
def peers_continue(run: Run, *, harmless: bool = False) -> None:
    """The others neither fail nor stand still: they make steps between its loss and its return.

    `harmless`: the fault is over before a peer has to notice.
    """
    fault, others = _fault_and_others(run)
    again = [*run.of("spawned", fault.task), *run.of("fault_ended", fault.task)]
    back = sorted(e.time_s for e in again if e.time_s > fault.time_s)
    healed = [e.time_s for e in run.of("fault_ended", fault.task)]
    if harmless:
        back = healed = []
    ended = run.exit_of(fault.task, fault.attempt)
    # A signal takes a while, in which fast ones make some steps.
    lost_s = ended.time_s if ended and ended.time_s < min(back, default=0.0) else fault.time_s
    for task in others:
        exited = run.exit_of(task, fault.attempt)
        # What comes of it once it is over, another check says.
        if exited and (exited["ended_by_harness"] or any(t < exited.time_s for t in healed)):
            exited = None
        code = exited["code"] if exited else 0
        equal(f"exit code of {task} after {fault['fault']} of {fault.task}", code, 0)
        made = [e for e in run.made_by(task, lost_s) if not back or e.time_s < back[0]]
        require(
            len(made) >= GOING_ON or run.of("finished", task),
            f"{task} made {len(made)} steps after {fault['fault']} of {fault.task}",
        )


@check
def peers_wait(run: Run) -> None:
    """The others neither fail nor make a step until the lost one is back."""
    fault, others = _fault_and_others(run)
    up = only(f"return of {fault.task}", run.of("started", fault.task, fault.attempt + 1))
    for task in others:
        ended = [e for e in run.of("exited", task, 0) if e.time_s < up.time_s]
        require(not ended, f"{task} ended before {fault.task} was back: {ended}")
        early = [e for e in run.of("step", task) if e.time_s < up.time_s]
        require(not early, f"{task} made {len(early)} steps before {fault.task} was back")


@check
def peers_finish(run: Run, limit_s: float) -> None:
    """The others end by themselves, with exit code 0, what was done when the lost one left."""
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
    """No driver but the one that was hurt ends with exit code 0 before all steps are made."""
    fault, _ = _fault_and_others(run)
    hurt = (fault.task, fault.attempt)
    for exited in run.of("exited"):
        by_itself = exited.task in run.drivers and not exited["ended_by_harness"]
        if not by_itself or exited["code"] != 0 or (exited.task, exited.attempt) == hurt:
            continue
        done = run.of("finished", exited.task, exited.attempt)
        steps = done[-1]["global_step"] if done else 0
        require(
            steps >= asked_steps(run),
            f"{exited.task} ended with exit code 0 after step {steps} of {asked_steps(run)}",
        )


@check
def training_resumes(run: Run) -> None:
    """When the lost one is back, started again or healed, it and everybody else make steps."""
    fault, _ = _fault_and_others(run)
    spawned = run.of("spawned", fault.task, fault.attempt + 1)
    back = some(f"return of {fault.task}", spawned or run.of("fault_ended", fault.task))[-1]
    # What its workers make, a coordinator tells only in a loop of its own.
    told = {*run.drivers, *(run.workers if "step" in run.trainer.events else ())}
    for task in sorted(told):
        made = run.made_by(task, back.time_s)
        require(
            len(made) >= GOING_ON,
            f"{task} made {len(made)} steps after {fault.task} was back",
        )


@check
def loses_at_most_one_save_interval(run: Run) -> None:
    """What is restored is the last save: at most one interval between two saves is done again."""
    attempt = last_attempt(run, run.drivers[0])
    require(attempt, f"{run.drivers[0]} was never started again")
    interval = run.flags.get("save-every") or run.flags["steps-per-epoch"]
    told = recovery.steps_reported(run)
    lost = recovery.steps_lost(run)
    require(
        0 <= lost <= interval,
        f"{told} steps had been told and {lost} of them were lost, with a save every {interval}",
    )


@check
def damage_is_detected(run: Run, reference: Run) -> None:
    """Of a damaged checkpoint nobody makes more than an error: what is trained is not built on it.

    Who finds it may end with an error, or go on from something else that is whole; then the end is
    the reference's, bit for bit.
    """
    fault, _ = _fault_and_others(run)
    second = fault.attempt + 1
    for task in run.drivers:
        exited = only(f"second end of {task}", run.of("exited", task, second))
        if exited["code"] != 0:
            continue
        found = only(f"final weights of {task}", weights(run, "final", task, second))
        wanted = some(f"epoch of the reference's {task}", weights(reference, "epoch", task))[-1]
        equal(f"weights of {task}, which said nothing of the damage", *_digests(found, wanted))


def _digests(*events: Event) -> list[str]:
    return [event["digest"] for event in events]


@check
def smaller_cluster_continues(run: Run, fewer: Run) -> None:
    """A cluster without the one that was lost goes on where the last save was, and trains on."""
    # Not everybody tells of a save; who does not saves at the end of each epoch.
    saves = some("save", [*run.of("checkpoint_saved"), *run.of("epoch")])
    saved = max(e["global_step"] for e in saves)
    restored = some(f"`restored` of {fewer.drivers[0]}", fewer.of("restored", fewer.drivers[0]))
    step = restored[0]["global_step"]
    require(step >= saved, f"step {step} was restored; step {saved} had been saved")
    for task in fewer.drivers:
        made = fewer.of(run.trainer.progress, task)
        first = some(f"step of {task} in the smaller cluster", made)[0]["global_step"]
        require(first > step, f"{task} began with step {first}, restored was {step}")
