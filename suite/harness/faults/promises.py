"""Define what the documents promise when a fault occurs: the reaction, the restart and the checks.

RULES chooses the promise for a row of the fault matrix and a trainer. The promise defines what the
scenario waits for, which tasks it restarts, and the checks that judge the outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from reference_trainers import Trainer
from suite.harness.checks import accounting, checkpoints, fault_matrix, parameter_servers, restart
from suite.harness.cluster.cluster import Cluster
from suite.harness.core.history import Run
from suite.harness.scenarios.base import (
    FEW,
    Launch,
    coordinated,
    give_time,
    give_time_to_end,
    quiet_s,
)

if TYPE_CHECKING:
    from suite.harness.faults.injection import FaultOutcome
    from suite.harness.faults.matrix import Row

# Tasks that are restarted. By the documents, synchronous training is restarted as a whole.
ALL, LOST, NONE, ONE_FEWER = "all", "the lost one", "none", "all but the lost one"


@dataclass(frozen=True)
class Reaction:
    """A cluster with an injected fault, and the peers of the target."""

    launch: Launch
    cluster: Cluster
    peers: Sequence[str]

    @property
    def detect_s(self) -> float:
        return self.launch.engine.deadlines.detect_s


@dataclass(frozen=True)
class Promise:
    """Describe one promise of the documents.

    `wait`: give the tasks time to react. `restart`: the tasks that are restarted after that.
    `reaction` judges the time before the restart; it gets the time limit of the reaction.
    `recovery` judges the time after the restart. `blocks`: peers hang until the target is back.
    """

    description: str  # of what the peers must do
    wait: Callable[[Reaction], None]
    restart: str
    reaction: Callable[[FaultOutcome, float], None] | None = None
    recovery: Callable[[FaultOutcome], None] | None = None
    blocks: bool = False


# --- waits ---------------------------------------------------------------------------------------


def are_gone(cluster: Cluster, tasks: Sequence[str]) -> Callable[[Run], bool]:
    """Return a predicate that is true when none of the tasks is alive."""
    return lambda _: not set(tasks) & set(cluster.alive())


def make_steps(cluster: Cluster, tasks: Sequence[str]) -> Callable[[Run], bool]:
    """Return a predicate: each task has made a few steps from now on, or has exited."""
    since_s = time.monotonic()

    def made(run: Run) -> bool:
        going = {task for task in tasks if len(run.steps_of(task, since_s)) >= FEW}
        return not (set(tasks) - going) & set(cluster.alive())

    return made


def peers_exit(at: Reaction) -> None:
    give_time_to_end(at.cluster, at.peers, at.detect_s)


def peers_exit_or_hang(at: Reaction) -> None:
    give_time_to_end(at.cluster, at.peers, 2 * quiet_s(at.launch))


def peers_make_steps(at: Reaction) -> None:
    give_time(at.cluster, at.detect_s, make_steps(at.cluster, at.peers))


def peers_stay_quiet(at: Reaction) -> None:
    gone = are_gone(at.cluster, at.peers)
    give_time(at.cluster, quiet_s(at.launch), lambda run: run.of("step") or gone(run))


def all_exit(at: Reaction) -> None:
    """Wait for all drivers, since a faulty disk affects every task that saves."""
    give_time_to_end(at.cluster, at.cluster.drivers, at.detect_s)


def restarted_cluster_trains(at: Reaction) -> None:
    """Wait until the restarted cluster exits; asynchronous work is endless, so wait for steps."""
    cluster, tasks = at.cluster, at.cluster.drivers
    if at.launch.case.trainer.synchronous:
        limit_s = at.launch.engine.deadlines.run_s
        give_time(cluster, limit_s, lambda _: set(tasks) - set(cluster.alive()))
        give_time_to_end(cluster, tasks, at.detect_s)  # the peers of the first task that exits
    else:
        give_time(cluster, at.detect_s, make_steps(cluster, tasks))


# --- promises ------------------------------------------------------------------------------------


def training_resumes(outcome: FaultOutcome) -> None:
    fault_matrix.training_resumes(outcome.run)


def evaluator_resumes(outcome: FaultOutcome) -> None:
    accounting.finishes_requested_steps(outcome.run)
    checkpoints.evaluates_the_latest(outcome.run)


def damage_is_detected(outcome: FaultOutcome) -> None:
    if outcome.reference and outcome.run.trainer.deterministic:
        fault_matrix.damage_is_detected(outcome.run, outcome.reference)
    fault_matrix.training_resumes(outcome.run)


TOLERATE = Promise(
    "the peers continue, and no task is lost",
    peers_make_steps,
    LOST,
    lambda outcome, _: fault_matrix.peers_continue(outcome.run, harmless=True),
)
CONTINUE = Promise(
    "the peers continue, and take the lost task back",
    peers_make_steps,
    LOST,
    lambda outcome, _: fault_matrix.peers_continue(outcome.run),
    training_resumes,
)
CONTINUE_WITHOUT_EVALUATION = Promise(
    "the workers continue; the evaluator evaluates again when back",
    peers_make_steps,
    LOST,
    lambda outcome, _: fault_matrix.peers_continue(outcome.run),
    evaluator_resumes,
)
FAIL = Promise(
    "each peer exits with an error within the limit",
    peers_exit,
    ALL,
    lambda outcome, limit_s: restart.peers_fail_in_time(outcome.run, limit_s),
    training_resumes,
)
BLOCK = Promise(
    "the peers wait until the lost task is back",
    peers_stay_quiet,
    LOST,
    lambda outcome, _: fault_matrix.peers_wait(outcome.run),
    training_resumes,
    blocks=True,
)
FINISH = Promise(
    "the peers finish, because no work was left",
    peers_exit,
    NONE,
    lambda outcome, limit_s: fault_matrix.peers_finish(outcome.run, limit_s),
)
ANYTHING = Promise(
    "no reaction is promised; a false success is an error",
    peers_exit_or_hang,
    ALL,
    recovery=training_resumes,
)
ANYTHING_UNTIL_COORDINATOR = Promise(
    "as anything; workers and servers wait for their coordinator",
    peers_exit_or_hang,
    LOST,
    recovery=training_resumes,
)
ANYTHING_ON_DISK = Promise(
    "as anything; the disk is faulty while all tasks train",
    all_exit,
    ALL,
    recovery=training_resumes,
)
DETECT_DAMAGE = Promise(
    "the restarted tasks must not build on a damaged checkpoint",
    restarted_cluster_trains,
    ALL,
    recovery=damage_is_detected,
)

# (condition on the row and the trainer, promise): the first condition that holds decides.
RULES: tuple[tuple[Callable[[Row, Trainer], bool], Promise], ...] = (
    (lambda row, _: row.kind.harmless, TOLERATE),
    (lambda row, _: row.target == "evaluator", CONTINUE_WITHOUT_EVALUATION),
    (lambda row, _: row.kind.at_restart, DETECT_DAMAGE),
    (lambda row, _: bool(row.kind.on_disk), ANYTHING_ON_DISK),
    (lambda _, trainer: not trainer.jobs, ANYTHING),
    (lambda row, trainer: coordinated(trainer) and row.target == "ps", FAIL),
    (
        lambda row, trainer: coordinated(trainer) and row.target == "chief",
        ANYTHING_UNTIL_COORDINATOR,
    ),
    (lambda row, trainer: not trainer.synchronous and row.target == "ps", ANYTHING),
    (lambda _, trainer: not trainer.synchronous, CONTINUE),
    (lambda row, _: row.injection_point == "forming", BLOCK),
    (lambda row, _: row.injection_point == "shutting down", FINISH),
    (lambda _, trainer: "mwms" in trainer.families, FAIL),
    # Peers of an Estimator fail or wait forever, depending on their state at that point: the
    # strategy checks their health only in eager mode, which an Estimator has to turn off.
    (lambda *_: True, ANYTHING),
)


def promise_of(row: Row, trainer: Trainer) -> Promise:
    """Return the reaction that the documents promise for this row and trainer."""
    return next(promise for condition, promise in RULES if condition(row, trainer))


# --- checks --------------------------------------------------------------------------------------


def weights_as_uninterrupted(outcome: FaultOutcome) -> None:
    if outcome.reference and outcome.run.trainer.deterministic:
        restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)


def result_after_full_restart(outcome: FaultOutcome) -> None:
    run = outcome.run
    if outcome.reference:
        accounting.finishes_requested_steps(run)
        fault_matrix.loses_at_most_one_save_interval(run)
        weights_as_uninterrupted(outcome)
    else:
        parameter_servers.cluster_restores_the_latest(run)


def result_after_return(outcome: FaultOutcome) -> None:
    run = outcome.run
    if outcome.reference:
        accounting.finishes_requested_steps(run)
        weights_as_uninterrupted(outcome)
    elif len(run.of("spawned", run.drivers[0])) > 1:  # the chief was the target
        parameter_servers.chief_restores_the_latest(run)


def result_of_smaller_cluster(outcome: FaultOutcome) -> None:
    assert outcome.fewer
    fault_matrix.smaller_cluster_continues(outcome.run, outcome.fewer)


RESULTS: Mapping[str, Callable[[FaultOutcome], None]] = MappingProxyType(
    {
        ALL: result_after_full_restart,
        LOST: result_after_return,
        NONE: lambda _: None,
        ONE_FEWER: result_of_smaller_cluster,
    }
)


def judge(outcome: FaultOutcome, limit_s: float) -> None:
    """Check the reaction within the limit, the recovery, and the result after the restart."""
    promise = outcome.promise
    fault_matrix.no_premature_success(outcome.run)
    if promise.reaction:
        promise.reaction(outcome, limit_s)
    if promise.recovery and outcome.restarted != ONE_FEWER:
        promise.recovery(outcome)
    RESULTS[outcome.restarted](outcome)
