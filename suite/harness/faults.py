"""The fault table: who is hurt how and when, and what the documents promise of the others.

FAULTS and MOMENTS are what a row of ROWS is made of; rows say which combinations mean something.
`scene(row)` is the row's scenario: `suite/faults/test_fault_table.py` judges it for each approach.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from reference_trainers import Trainer
from suite.harness import disasters, probes
from suite.harness.cases import Case
from suite.harness.cluster import Cluster
from suite.harness.run import Run
from suite.harness.staging import (
    FEW,
    Launch,
    coordinated,
    endless_work,
    give_time,
    quiet_s,
    wait_started,
    work,
)

# --- what the others do --------------------------------------------------------------------------

FAIL = "fail"  # each with an error, within the limit; then all are started again
NOTHING = "nothing"  # is promised but that a restart of all goes on
GO_ON = "go on"  # and take the lost one in again
WAIT = "wait"  # for the lost one, which alone is started again
FINISH = "finish"  # as if nothing had happened, for nothing was left to do

# --- faults --------------------------------------------------------------------------------------

Strike = Callable[[Cluster, str], AbstractContextManager[None]]
BRIEFLY_S = 2.0  # much less than the seconds after which TensorFlow takes a silent task for dead


@contextlib.contextmanager
def killed(cluster: Cluster, task: str) -> Iterator[None]:
    """It is gone between two instructions, as with a machine that loses power."""
    cluster.signal(task, signal.SIGKILL, fault="sigkill")
    cluster.wait_exit(task)
    yield


@contextlib.contextmanager
def terminated(cluster: Cluster, task: str) -> Iterator[None]:
    """It is asked to leave, as a cluster manager does first."""
    cluster.signal(task, signal.SIGTERM, fault="sigterm")
    yield


@contextlib.contextmanager
def stopped(cluster: Cluster, task: str) -> Iterator[None]:
    """It stands still with its connections open, for as long as the context lasts."""
    cluster.signal(task, signal.SIGSTOP, fault="sigstop")
    try:
        yield
    finally:
        cluster.signal(task, signal.SIGCONT, healed="sigstop")


@contextlib.contextmanager
def paused(cluster: Cluster, task: str) -> Iterator[None]:
    """It stands still for a moment, as in a snapshot of its machine, and is back before `yield`."""
    cluster.signal(task, signal.SIGSTOP, fault="pause")
    give_time(cluster, BRIEFLY_S, lambda _: False)  # that nobody minds is what is to be seen
    cluster.signal(task, signal.SIGCONT, healed="pause")
    yield


@contextlib.contextmanager
def planted(cluster: Cluster, task: str) -> Iterator[None]:
    """The program does it by itself: see suite/programs/planted.py."""
    cluster.wait_for("fault_started", task)
    yield


@dataclass(frozen=True)
class Fault:
    """What can be done to a task.

    `harmless`: nobody is lost by it; `ends`: the task is to end of it, soon if not at once.
    """

    strike: Strike
    harmless: bool = False
    ends: bool = True

    @property
    def planted(self) -> bool:
        return self.strike is planted


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "sigkill": Fault(killed),
        "sigterm": Fault(terminated),
        "sigstop": Fault(stopped, ends=False),
        "pause": Fault(paused, harmless=True, ends=False),
        "exception": Fault(planted),
        "exit": Fault(planted),
        "straggler": Fault(planted, harmless=True, ends=False),
    }
)

# --- moments -------------------------------------------------------------------------------------

EPOCHS, STEPS = 3, 20
AT_STEP = disasters.kill_at({"steps-per-epoch": STEPS})


def _stepped(cluster: Cluster, task: str) -> None:
    at_step = AT_STEP if cluster.plan.trainer.synchronous else FEW
    event = cluster.plan.trainer.progress
    cluster.wait_for(event, task, where=lambda e: e["global_step"] >= at_step)


# moment -> waits until the task is there. Of a coordinator's workers the coordinator tells.
MOMENTS: Mapping[str, Callable[[Cluster, str], object]] = MappingProxyType(
    {
        "forming": lambda cluster, task: cluster.wait_for("started", task),
        "first step": lambda cluster, task: cluster.wait_for("joined", task),
        "mid-epoch": _stepped,
        "epoch's end": lambda cluster, task: cluster.wait_for("epoch", task),
        "evaluating": lambda cluster, task: cluster.wait_for(
            "step", task, where=lambda e: e["global_step"] >= STEPS
        ),
        "shutting down": lambda cluster, task: cluster.wait_for("finished", task),
    }
)
IN_STEP_ONLY = ("forming", "epoch's end", "evaluating", "shutting down")

# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the table. `quick`: also in a run of everything, the others by `-m matrix`."""

    fault: str  # of FAULTS
    victim: str  # chief, or worker: the last one
    moment: str  # of MOMENTS
    quick: bool = False

    @property
    def name(self) -> str:
        return f"{self.fault}-{self.victim}-{self.moment}".replace(" ", "_").replace("'", "")

    def means_something(self, trainer: Trainer) -> bool:
        """Whether this can happen to this approach, and anybody else is left to see it."""
        if not trainer.jobs or trainer.aggregates:
            return False
        if coordinated(trainer):
            outside = not FAULTS[self.fault].planted
            return self.victim == "worker" and self.moment == "mid-epoch" and outside
        # An asynchronous chief that is lost at first has nothing initialised: that is for it to do.
        initialising = self.victim == "chief" and self.moment == "first step"
        return trainer.synchronous or not (initialising or self.moment in IN_STEP_ONLY)

    def promise(self, trainer: Trainer) -> str:
        """What the others do, by the documents."""
        if FAULTS[self.fault].harmless or not trainer.synchronous:
            return GO_ON
        # An Estimator's peers fail or wait for ever, by what they do at that moment: only in eager
        # mode, which it has to turn off, does the strategy look after them.
        lost = FAIL if "mwms" in trainer.families else NOTHING
        return {"forming": WAIT, "shutting down": FINISH}.get(self.moment, lost)


ROWS = (
    Row("sigkill", "worker", "forming"),
    Row("sigkill", "worker", "first step"),
    Row("sigkill", "worker", "mid-epoch"),
    Row("sigkill", "worker", "epoch's end"),
    Row("sigkill", "worker", "evaluating"),
    Row("sigkill", "worker", "shutting down"),
    Row("sigkill", "chief", "first step"),
    Row("sigkill", "chief", "mid-epoch"),
    Row("sigkill", "chief", "epoch's end"),
    Row("sigterm", "worker", "mid-epoch"),
    Row("sigterm", "chief", "mid-epoch"),
    Row("sigstop", "worker", "mid-epoch"),
    Row("pause", "worker", "mid-epoch"),
    Row("exception", "worker", "mid-epoch"),
    Row("exception", "chief", "mid-epoch"),
    Row("exit", "worker", "mid-epoch", quick=True),
    Row("straggler", "worker", "mid-epoch"),
)

# --- the scenario --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Struck:
    """A run in which a row of the table happened, and what was promised of it."""

    run: Run
    row: Row
    promise: str


def scene(row: Row) -> Callable[[Launch], Struck]:
    """The scenario of a row, for those approaches for which it means something."""

    def play(launch: Launch) -> Struck:
        promise = row.promise(launch.case.trainer)
        return Struck(_strike(launch, row, promise), row, promise)

    def means(case: Case) -> bool:
        return row.means_something(case.trainer)

    play.__name__ = row.name
    play.row, play.means, play.long = row, means, not row.quick  # type: ignore[attr-defined]
    return play


SCENES = tuple(scene(row) for row in ROWS)


def _strike(launch: Launch, row: Row, promise: str) -> Run:
    fault, flags = FAULTS[row.fault], _flags(launch, row)
    how: dict[str, Any] = {"flags": flags, "model_dir": launch.directory / disasters.INTERRUPTED}
    victim = (launch.engine.topology(launch.case.trainer).workers)[
        0 if row.victim == "chief" else -1
    ]
    trainer = launch.case.trainer
    if fault.planted:
        own = {"program": trainer.program, "plant": row.fault, "victim": victim}
        at_step = AT_STEP if trainer.synchronous else FEW
        how["flags"] = {**flags, **own, "at-step": at_step}
        trainer = probes.program(launch, "planted", flags=(*trainer.flags, *own, "at-step"))
    with launch(trainer, **how) as cluster:
        cluster.start()
        others = [task for task in cluster.drivers if task != victim]
        MOMENTS[row.moment](cluster, victim if victim in cluster.drivers else others[0])
        with fault.strike(cluster, victim):
            _watch(launch, cluster, others, promise)
        if fault.ends and promise == GO_ON:
            end_s = launch.engine.deadlines.exit_s
            give_time(cluster, end_s, lambda run: run.exit_of(victim, 0))
        return _recover(launch, cluster, victim, promise)


def _flags(launch: Launch, row: Row) -> dict[str, Any]:
    trainer = launch.case.trainer
    if not trainer.synchronous:
        return endless_work(launch)
    evaluate = row.moment == "evaluating"
    steps = {"epochs": EPOCHS, "steps_per_epoch": STEPS, "evaluate": evaluate}
    return work(launch, optimizer="momentum", order="by-epoch", **steps)


def _watch(launch: Launch, cluster: Cluster, others: Sequence[str], promise: str) -> None:
    """Give the others the time in which they must do what is promised."""
    since_s = cluster.run().of("fault_started")[-1].time_s
    limits = launch.engine.deadlines

    def all_go_on_or_end(run: Run) -> bool:
        return all(len(run.made_by(t, since_s)) >= FEW or run.exit_of(t) for t in others)

    if promise in (FAIL, NOTHING, FINISH):
        give_time(cluster, limits.detect_s, lambda run: disasters.all_ended(run, others))
    elif promise == WAIT:

        def seen(run: Run) -> object:
            return run.of("step") or disasters.all_ended(run, others)

        give_time(cluster, quiet_s(launch), seen)
    else:
        give_time(cluster, limits.detect_s, all_go_on_or_end)


def _recover(launch: Launch, cluster: Cluster, victim: str, promise: str) -> Run:
    """Start again what the document says, and give it time to train."""
    trainer = cluster.plan.trainer
    if promise == FINISH:
        return cluster.run()
    if promise in (FAIL, NOTHING):
        disasters.end_all(cluster)
        cluster.start()
    elif victim not in cluster.alive():
        cluster.start(victim)
        wait_started(cluster, [victim], attempt=1)
    if trainer.synchronous:
        return cluster.finish()
    back_s = cluster.run().of("spawned", victim)[-1].time_s

    def all_train(run: Run) -> bool:
        return all(len(run.made_by(t, back_s)) >= FEW or run.exit_of(t) for t in cluster.workers)

    give_time(cluster, launch.engine.deadlines.step_s, all_train)
    return cluster.run()
