"""Run one row of the fault matrix: inject the fault into its target and give peers time to react.

promises.py defines the reaction, and judges the outcome of `scene(row)` for each approach.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suite.harness.cluster.cluster import Cluster
from suite.harness.core.case import Case
from suite.harness.core.errors import event_missing
from suite.harness.core.history import Run
from suite.harness.faults.fault import Fault
from suite.harness.faults.injection_points import INJECTION_POINTS
from suite.harness.faults.matrix import ROWS, Row
from suite.harness.faults.process_faults import by_program
from suite.harness.faults.promises import (
    ALL,
    LOST,
    NONE,
    ONE_FEWER,
    Promise,
    Reaction,
    are_gone,
    make_steps,
)
from suite.harness.scenarios import crashes, small_programs
from suite.harness.scenarios.base import Launch, give_time, program, quiet_s, wait_started
from suite.harness.scenarios.fault_free import chief_and_workers, healthy


@dataclass(frozen=True)
class FaultOutcome:
    """A run of one row of the fault matrix, with the reaction that the documents promise."""

    run: Run
    row: Row
    promise: Promise
    restarted: str  # the tasks that were restarted
    fewer: Run | None = None  # the run with one worker fewer, where the row asks for it
    reference: Run | None = None  # the same work without a fault, where it ends and is comparable


def scene(row: Row) -> Callable[[Launch], FaultOutcome]:
    """Return the scenario of a row, for the approaches to which the row applies."""

    def run(launch: Launch) -> FaultOutcome:
        return _Scenario(launch, row).run()

    def means(case: Case) -> bool:
        return row.means_something(case.trainer)

    run.__name__ = row.name
    run.row, run.means = row, means  # type: ignore[attr-defined]
    run.alone = row.kind.on_node  # type: ignore[attr-defined] - other clusters would lose tasks
    run.marks = () if row.quick else ("matrix",)  # type: ignore[attr-defined]
    return run


SCENARIOS = tuple(scene(row) for row in ROWS)


class _Scenario:
    """One row, run for one approach."""

    def __init__(self, launch: Launch, row: Row) -> None:
        self.launch, self.row = launch, row
        self.trainer = launch.case.trainer
        self.fault: Fault = row.kind
        self.promise = row.promise(self.trainer)
        self.restarted = row.restarted(self.trainer)
        followed = row.target == "evaluator"
        self.jobs = (*chief_and_workers(launch), ("evaluator", 1)) if followed else None
        self.topology = launch.engine.topology(self.trainer, self.jobs)
        self.target = row.task(self.topology)
        self.others = [task for task in self.topology.drivers if task != self.target]
        in_step = self.trainer.synchronous and not row.by_program  # faults of a program do not wait
        self.hold = INJECTION_POINTS[row.injection_point].hold if in_step else None
        self.limits = launch.engine.deadlines

    def run(self) -> FaultOutcome:
        self._must_show()
        how = self._work()
        with self.launch(self._program(how), **how) as cluster:
            if self.hold:
                cluster.hold(self.target, *self.hold(cluster.plan.flags))
            cluster.start(*self.others) if self.fault.delayed_start else cluster.start()
            wait = INJECTION_POINTS[self.row.injection_point].wait
            if wait and not (self.fault.delayed_start or self.row.by_program):
                wait(cluster, self.target)
            inject = by_program if self.row.by_program else self.fault.inject
            if self.fault.harmless:  # over before the context begins, and must hit training
                cluster.let_go(self.target)
            with inject(cluster, self.target):
                cluster.let_go(self.target)
                if self.fault.at_restart:
                    cluster.start()
                elif self.fault.ends and not self.fault.delayed_start and self.restarted == LOST:
                    gone = are_gone(cluster, (self.target,))
                    give_time(cluster, self.limits.exit_s, gone)
                self.promise.wait(Reaction(self.launch, cluster, self.others))
                self._explain(cluster)
            run = self._go_on(cluster)
        fewer = None
        if self.restarted == ONE_FEWER:
            fewer = self._one_fewer(how)
        reference = None
        if self.trainer.synchronous and not self.jobs:
            reference = self.launch.outcome(crashes.undisturbed)
        return FaultOutcome(run, self.row, self.promise, self.restarted, fewer, reference)

    def _must_show(self) -> None:
        """Raise NotExamined if a user's program does not show the injection point."""
        event = INJECTION_POINTS[self.row.injection_point].event
        if self.trainer.of_user and event and not self.launch.outcome(healthy).of(event):
            raise event_missing(event)

    def _work(self) -> dict[str, Any]:
        """Return the launch arguments: flags, model directory, hosts, disk and jobs."""
        if self.trainer.synchronous:
            evaluate = self.row.injection_point == "evaluating"
            flags = crashes.work_in_epochs(self.launch, order="by-epoch", evaluate=evaluate)
            how = {"flags": flags, "model_dir": self.launch.directory / crashes.INTERRUPTED}
        else:
            how = {**crashes.saving(self.launch)}
        if self.fault.on_disk or self.fault.at_restart:
            how["model_dir"].mkdir(parents=True, exist_ok=True)
        where: dict[str, Any] = {"on_hosts": self.fault.on_hosts, "on_disk": self.fault.on_disk}
        where["alone"] = self.target if self.fault.on_node else ""
        return {**how, **where, "jobs": self.jobs}

    def _program(self, how: dict[str, Any]) -> Any:
        """Return the program that faults itself, or None for the plain trainer.

        Add the flags of that program to `how`.
        """
        if not self.row.by_program:
            return None
        saving = INJECTION_POINTS[self.row.injection_point].by_program
        # Asynchronous trainers: at a reported save (0), or between two saves.
        first = 0 if saving else crashes.SAVE_EVERY * 3 // 2
        if self.trainer.synchronous:
            first = crashes.kill_at(how["flags"])
        own = {
            "program": self.trainer.program,
            "fault": self.row.fault,
            "when": "saving" if saving else "step",
            "target": self.target,
            "at-step": first,
        }
        if self.trainer.of_user:
            own["model-dir"] = how["model_dir"]
            return small_programs.around(self.launch, "faulty_trainer", own)
        how["flags"] = {**how["flags"], **own}
        return program(
            self.launch,
            "faulty_trainer",
            flags=(*self.trainer.flags, *own),
            plain=self.trainer.plain,
        )

    def _explain(self, cluster: Cluster) -> None:
        """Report the wait of peers that neither exit nor make progress, while they still hang."""
        still_s = time.monotonic() - quiet_s(self.launch)
        going = {e.task for e in cluster.run().of(self.trainer.progress) if e.time_s > still_s}
        stuck = [task for task in self.others if task not in going]
        if not self.promise.blocks:
            missing = sorted({self.target} | (set(cluster.tasks) - set(cluster.alive())))
            cluster.report_hangs(*stuck, missing=missing)

    def _go_on(self, cluster: Cluster) -> Run:
        """Restart the tasks that the document names, and give them time to train."""
        if self.restarted == NONE:
            return cluster.run()
        if self.restarted in (ALL, ONE_FEWER):
            crashes.end_all(cluster)
        if self.restarted == ONE_FEWER:
            return cluster.run()
        if self.restarted == ALL:
            cluster.start()
        elif not self.fault.harmless and self.target not in cluster.alive():
            attempt = cluster.attempts.get(self.target, -1) + 1
            cluster.start(self.target)
            wait_started(cluster, [self.target], attempt=attempt)
        if self.trainer.synchronous:
            return cluster.finish()
        self._let_train(cluster)
        return cluster.run()

    def _let_train(self, cluster: Cluster) -> None:
        """Wait until all tasks whose steps are reported have made a few more steps, or exited."""
        servers_too = cluster.workers if "step" in self.trainer.events else ()
        reporting = tuple({*cluster.drivers, *servers_too})
        give_time(cluster, self.limits.step_s, make_steps(cluster, reporting))

    def _one_fewer(self, how: dict[str, Any]) -> Run:
        """Run a cluster without the lost worker, which continues from the last save."""
        count = len(self.topology.workers) - 1
        with self.launch(workers=count, **how) as cluster:
            cluster.start()
            if self.trainer.synchronous:
                return cluster.finish()
            self._let_train(cluster)
            return cluster.run()
