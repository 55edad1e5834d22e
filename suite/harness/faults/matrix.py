"""The rows of the fault table: who is hurt how and when, and what the documents promise then.

FAULTS and MOMENTS are what a row of ROWS is made of; rows say which combinations mean something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reference_trainers import Trainer
from suite.harness.core.topology import Topology
from suite.harness.faults import network_faults, process_faults, storage_faults
from suite.harness.faults.fault import Fault
from suite.harness.faults.injection_points import INJECTION_POINTS
from suite.harness.scenarios.base import coordinated

FAULTS: Mapping[str, Fault] = MappingProxyType(
    {**process_faults.FAULTS, **network_faults.FAULTS, **storage_faults.FAULTS}
)

# --- what the others do --------------------------------------------------------------------------

FAIL = "fail"  # each with an error, within the limit
ANYTHING = "anything"  # but to pretend that all was well: nothing else is promised
GO_ON = "go on"  # and take the lost one in again
WAIT = "wait"  # for the lost one
FINISH = "finish"  # as if nothing had happened, for nothing was left to do

# --- who is started again ------------------------------------------------------------------------

ALL, LOST, NOBODY, ONE_FEWER = "all", "the lost one", "nobody", "all but the lost one"
# As the documents say: synchronous training is started again as a whole.
RESTART = {FAIL: ALL, ANYTHING: ALL, GO_ON: LOST, WAIT: LOST, FINISH: NOBODY}

# --- rows ----------------------------------------------------------------------------------------

MATTERS_ALONE = ("mid-epoch", "saving", "restoring")  # in one process


@dataclass(frozen=True)
class Row:
    """One line of the table. `quick`: also in a run of everything, others by --fault-matrix."""

    fault: str  # of FAULTS
    target: str  # chief (which may coordinate), worker or ps (the last one of each), evaluator
    moment: str  # of MOMENTS
    restart: str = ""  # who is started again; "": as the documents say
    quick: bool = False

    @property
    def name(self) -> str:
        parts = [self.fault, self.target, self.moment, *([self.restart] if self.restart else [])]
        return "-".join(parts).replace(" ", "_").replace("'", "")

    @property
    def planted(self) -> bool:
        """Whether the program hurts itself: see suite/programs/planted.py."""
        return FAULTS[self.fault].planted or INJECTION_POINTS[self.moment].planted

    def told(self, trainer: Trainer) -> str:
        """Victim and moment in the words of the report."""
        leads = self.target == "chief" and coordinated(trainer)
        restart = f", {self.restart} started again" if self.restart else ""
        return f"{'coordinator' if leads else self.target}, {self.moment}{restart}"

    def task(self, topology: Topology) -> str:
        """The task that is hurt."""
        if self.target == "chief":
            return topology.drivers[0]
        if self.target == "worker":
            return topology.workers[-1]
        return [task for task in topology.tasks if task.startswith(f"{self.target}/")][-1]

    def means_something(self, trainer: Trainer) -> bool:
        """Whether this can happen to this approach, and there is something to see."""
        fault, moment, jobs = FAULTS[self.fault], INJECTION_POINTS[self.moment], dict(trainer.jobs)
        if not jobs:  # nobody else who would fail, wait or go on: what counts is what was saved
            stored = fault.ends or fault.at_restart or bool(fault.on_disk)
            return stored and self.target == "chief" and self.moment in MATTERS_ALONE
        if self.target == "evaluator":  # others have one that is a program of its own
            return "estimator" in trainer.families
        if self.target == "ps":
            return "ps" in jobs
        if trainer.aggregates:
            return False
        if coordinated(trainer):
            # Its workers are servers, which load nothing and have no program of their own to hurt.
            in_time = self.moment == "mid-epoch" and not fault.planted
            in_time &= self.target == "chief" or not fault.at_restart
            return in_time or (self.target == "chief" and moment.planted)
        # An asynchronous chief that is lost at first has nothing initialised: that is for it to do.
        initialising = self.target == "chief" and self.moment == "first step"
        return trainer.synchronous or (moment.asynchronous and not initialising)

    def promise(self, trainer: Trainer) -> str:
        """What the others do, by the documents."""
        fault = FAULTS[self.fault]
        if fault.harmless or self.target == "evaluator":
            return GO_ON
        if fault.at_restart or fault.on_disk or not trainer.jobs:
            return ANYTHING
        if coordinated(trainer) and self.target != "worker":
            return FAIL if self.target == "ps" else ANYTHING
        if not trainer.synchronous:
            return ANYTHING if self.target == "ps" else GO_ON
        # An Estimator's peers fail or wait for ever, by what they do at that moment: only in eager
        # mode, which it has to turn off, does the strategy look after them.
        lost = FAIL if "mwms" in trainer.families else ANYTHING
        return {"forming": WAIT, "shutting down": FINISH}.get(self.moment, lost)

    def restarted(self, trainer: Trainer) -> str:
        """Who is started again."""
        fault = FAULTS[self.fault]
        # Workers and parameter servers wait for a coordinator that comes back.
        leads = self.target == "chief" and coordinated(trainer)
        if leads and not (fault.at_restart or fault.on_disk or fault.harmless):
            return LOST
        return self.restart or RESTART[self.promise(trainer)]


ROWS = (
    Row("delayed-start", "worker", "forming"),
    Row("sigkill", "worker", "forming"),
    Row("sigkill", "worker", "first step"),
    Row("sigkill", "worker", "mid-epoch"),
    Row("sigkill", "worker", "mid-epoch", ONE_FEWER),
    Row("sigkill", "worker", "epoch's end"),
    Row("sigkill", "worker", "restoring"),
    Row("sigkill", "worker", "evaluating"),
    Row("sigkill", "worker", "shutting down"),
    Row("sigkill", "chief", "first step"),
    Row("sigkill", "chief", "mid-epoch"),
    Row("sigkill", "chief", "epoch's end"),
    Row("sigkill", "chief", "saving"),
    Row("sigkill", "chief", "restoring"),
    Row("sigkill", "ps", "mid-epoch"),
    Row("sigkill", "evaluator", "mid-epoch"),
    Row("empty-disk", "worker", "mid-epoch"),
    Row("sigterm", "worker", "mid-epoch"),
    Row("sigterm", "chief", "mid-epoch"),
    Row("sigterm", "ps", "mid-epoch"),
    Row("sigstop", "worker", "mid-epoch"),
    Row("sigstop", "ps", "mid-epoch"),
    Row("pause", "worker", "mid-epoch"),
    Row("exception", "worker", "mid-epoch"),
    Row("exception", "chief", "mid-epoch"),
    Row("exit", "worker", "mid-epoch", quick=True),
    Row("straggler", "worker", "mid-epoch"),
    Row("link-down", "worker", "mid-epoch"),
    Row("link-down", "chief", "mid-epoch"),
    Row("link-down", "ps", "mid-epoch"),
    Row("drop", "worker", "mid-epoch"),
    Row("drop-ingress", "worker", "mid-epoch"),
    Row("drop-egress", "worker", "mid-epoch"),
    Row("link-flap", "worker", "mid-epoch"),
    Row("throttle", "worker", "mid-epoch"),
    Row("truncated", "chief", "mid-epoch"),
    Row("missing", "chief", "mid-epoch"),
    Row("bit-flip", "chief", "mid-epoch"),
    Row("disk-full", "chief", "mid-epoch"),
    Row("read-only", "chief", "mid-epoch"),
)
