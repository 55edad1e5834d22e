"""Check the coordinator of ParameterServerStrategy, and the functions that it schedules."""

from __future__ import annotations

import math

from suite.harness.checks.assertions import check, require, some
from suite.harness.checks.checkpoints import chief
from suite.harness.checks.parameter_servers import GOING_ON, absence
from suite.harness.core.history import Event, Run


@check
def coordinator_continues(run: Run) -> None:
    """Require that the driver of the loop continues without a lost worker, and after its return."""
    lost, died, back = absence(run)
    for task in run.drivers:
        ended = run.exit_of(task)
        require(not ended or ended["ended_by_harness"], f"{task} ended: {ended}")
        made = run.steps_of(task)
        without = [e for e in made if died < e.time_s < back]
        again = [e for e in made if e.time_s > back]
        what = f"{run.trainer.progress}s that {task} reported while {lost} was"
        require(len(without) >= GOING_ON, f"{what} dead: {len(without)}, fewer than {GOING_ON}")
        require(len(again) >= GOING_ON, f"{what} back: {len(again)}, fewer than {GOING_ON}")


@check
def functions_run_at_least_once(run: Run) -> None:
    """Require that a lost worker loses no scheduled function, and few run more than once.

    The check counts at each save, when no function is in flight. A worker runs one function at a
    time, so each loss repeats at most as many as there are workers.
    """
    leader = chief(run)
    for event in some("checkpoint after a loss", _saved_after(run, run.of("fault_started"))):
        before = [e for e in run.events if e.attempt == event.attempt and e.time_s < event.time_s]
        scheduled = sum(e["steps"] for e in before if e.name == "scheduled" and e.task == leader)
        first = next((e["global_step"] for e in before if e.name == "restored"), 0)
        lost = sum(e.name == "fault_started" for e in before)
        repeated = event["global_step"] - first - scheduled
        require(
            0 <= repeated <= lost * len(run.workers),
            f"{scheduled} functions were scheduled before {event['path']}, which holds "
            f"{event['global_step'] - first} updates; {lost} workers were lost of {run.workers}",
        )


@check
def executed_as_scheduled(run: Run) -> None:
    """Require that a coordinator gets back as many functions as it scheduled since its own start.

    As with updates, few may have run more than once when workers were lost.
    """
    leader = chief(run)
    for last in some(f"round of {leader}", run.of("executed", leader)):
        events = [e for e in run.events if e.attempt == last.attempt and e.time_s <= last.time_s]
        given, back = (
            sum(e["steps"] for e in events if e.name == name and e.task == leader)
            for name in ("scheduled", "executed")
        )
        lost = sum(e.name == "fault_started" for e in events)
        require(
            0 <= back - given <= lost * len(run.workers),
            f"start {last.attempt} of {leader} scheduled {given} functions and reported {back} "
            f"executed ones; {lost} workers were lost of {run.workers}",
        )


def _saved_after(run: Run, faults: list[Event]) -> list[Event]:
    fault_s = min((e.time_s for e in faults), default=math.inf)
    return [e for e in run.of("checkpoint_saved", chief(run)) if e.time_s > fault_s]
