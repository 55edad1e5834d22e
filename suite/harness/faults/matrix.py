"""Define the rows of the fault matrix: fault, target and injection point.

Rows of ROWS combine FAULTS and INJECTION_POINTS, and define to which approaches they apply.
promises.py defines the documented reaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reference_trainers import Trainer
from suite.harness.core.topology import Topology
from suite.harness.faults import (
    network_faults,
    node_faults,
    process_faults,
    storage_faults,
)
from suite.harness.faults.fault import Fault
from suite.harness.faults.injection_points import INJECTION_POINTS
from suite.harness.faults.promises import ALL, ONE_FEWER, Promise, promise_of
from suite.harness.scenarios.base import coordinated

FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        **process_faults.FAULTS,
        **network_faults.FAULTS,
        **node_faults.FAULTS,
        **storage_faults.FAULTS,
    }
)

MATTERS_ALONE = ("mid-epoch", "saving", "restoring")  # apply to a single process


@dataclass(frozen=True)
class Row:
    """One row of the fault matrix.

    `quick`: the row runs by default. All others need --fault-matrix.
    """

    fault: str  # of FAULTS
    target: str  # chief (maybe a coordinator), evaluator, or the last worker or ps
    injection_point: str  # of INJECTION_POINTS
    restart: str = ""  # the tasks to restart; "": as documented
    quick: bool = False

    @property
    def name(self) -> str:
        parts = [
            self.fault,
            self.target,
            self.injection_point,
            *([self.restart] if self.restart else []),
        ]
        return "-".join(parts).replace(" ", "_").replace("'", "")

    @property
    def kind(self) -> Fault:
        return FAULTS[self.fault]

    @property
    def by_program(self) -> bool:
        """Return True if suite/programs/faulty_trainer.py injects the fault."""
        return self.kind.by_program or INJECTION_POINTS[self.injection_point].by_program

    def variant(self, trainer: Trainer) -> str:
        """Return target and injection point in the words of the report."""
        leads = self.target == "chief" and coordinated(trainer)
        restart = f", {self.restart} started again" if self.restart else ""
        return f"{'coordinator' if leads else self.target}, {self.injection_point}{restart}"

    def task(self, topology: Topology) -> str:
        """Return the target task."""
        if self.target == "chief":
            return topology.drivers[0]
        if self.target == "worker":
            return topology.workers[-1]
        return [task for task in topology.tasks if task.startswith(f"{self.target}/")][-1]

    def means_something(self, trainer: Trainer) -> bool:
        """Return True if the row applies to this approach and has an observable effect."""
        fault, jobs = self.kind, dict(trainer.jobs)
        injection_point = INJECTION_POINTS[self.injection_point]
        if not jobs:  # a single process has no peers: only its saved state counts
            stored = fault.ends or fault.at_restart or bool(fault.on_disk)
            return stored and self.target == "chief" and self.injection_point in MATTERS_ALONE
        if trainer.of_user and self.injection_point == "evaluating":
            return False  # it need not evaluate, and there would be no event of it
        if self.target == "evaluator":  # other approaches evaluate in a program of their own
            return "estimator" in trainer.families
        if self.target == "ps":
            return "ps" in jobs
        if trainer.aggregates:
            return False
        if coordinated(trainer):
            # Workers of a coordinator are servers: they load no checkpoint, and run no program of
            # their own that could inject a fault.
            in_time = self.injection_point == "mid-epoch" and not fault.by_program
            in_time &= self.target == "chief" or not fault.at_restart
            return in_time or (self.target == "chief" and injection_point.by_program)
        # An asynchronous chief that is lost at its first step has not initialized the variables,
        # and only the chief can.
        initializing = self.target == "chief" and self.injection_point == "first step"
        return trainer.synchronous or (injection_point.asynchronous and not initializing)

    def promise(self, trainer: Trainer) -> Promise:
        """Return the reaction that the documents promise."""
        return promise_of(self, trainer)

    def restarted(self, trainer: Trainer) -> str:
        """Return which tasks are restarted."""
        return self.restart or self.promise(trainer).restart


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
    # A task starts on another node at another address, so all tasks start again.
    Row("node-down", "worker", "mid-epoch", ALL),
    Row("node-down", "chief", "mid-epoch", ALL),
    Row("node-down", "ps", "mid-epoch", ALL),
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
