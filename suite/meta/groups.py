"""Map each scenario of each fake to its checks, and each outcome to the checks' arguments."""

from __future__ import annotations

import inspect
import itertools
import pkgutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness import checks
from suite.harness.checks.assertions import CHECKS
from suite.harness.cluster.launcher import Engine
from suite.harness.core.errors import CheckFailed
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared, Continued
from suite.harness.core.single_flight import SingleFlight
from suite.harness.faults import injection, matrix
from suite.harness.scenarios import crashes, fault_free
from suite.harness.scenarios.base import Launch
from suite.meta import coordinated, histories
from suite.meta.fakes import AGGREGATES, LOOP, MIRRORED, SERVERS, SINGLE, WORKERS, FakeCase

for _module in pkgutil.iter_modules(checks.__path__, f"{checks.__name__}."):
    import_module(_module.name)  # importing a module registers its checks


LIMIT_S = 2.0  # time limit for fakes to detect a lost peer


@dataclass(frozen=True)
class Group:
    """One scenario of one fake, and all checks that can read its outcome."""

    name: str
    trainer: Trainer
    scenario: Callable[[Any], Any]  # of a Launch, or of a FakeCase
    checks: tuple[str, ...]


def restored_elsewhere(launch: Launch) -> Continued:
    found = fault_free.moved(launch, SINGLE)
    return Continued(found.run, found.then)


def equal_elsewhere(launch: Launch) -> Compared:
    found = fault_free.moved(launch, WORKERS)
    return Compared(found.then, found.reference)


def fault_of(name: str) -> Callable[[FakeCase], injection.FaultOutcome]:
    """Return a scenario that runs the named row of the fault matrix."""
    (row,) = (row for row in matrix.ROWS if row.name == name)

    def run(launch: FakeCase) -> injection.FaultOutcome:
        return injection.scene(row)(replace(launch, injection_point=row.injection_point))

    return run


FINISHED = ("finishes_requested_steps", "steps_accounted", "examples_accounted")
IN_STEP = ("workers_agree_on_metrics", "workers_agree_on_weights")
START = ("one_chief", "cluster_as_given", "server_target_logged")
LEARNING = ("loss_falls", "accuracy_rises", "epochs_accounted")
RESUMED = (
    "finishes_requested_steps",
    "resumes_interrupted_epoch",
    "restored_state_equals_uninterrupted",
    "partial_epoch_leaves_no_trace",
    "final_weights_equal_uninterrupted",
    "backup_removed",
)

GROUPS = (
    Group(
        "healthy",
        WORKERS,
        fault_free.healthy,
        (
            *FINISHED,
            *START,
            *LEARNING,
            *IN_STEP,
            "validation_agrees",
            "collective_is_known",
            "backend_as_requested",
            "save_paths_distinct",
            "only_chief_keeps",
            "exports_identical",
        ),
    ),
    Group("baseline", WORKERS, fault_free.with_baseline, ("converges_to_baseline",)),
    Group("chief-job", WORKERS, fault_free.chief_job, (*FINISHED, *START, *IN_STEP)),
    Group("late", WORKERS, fault_free.late_worker, (*START, "waits_for_all")),
    Group("alone", WORKERS, fault_free.alone, ("trains_as_a_cluster_of_one",)),
    Group(
        "unexpected-task", WORKERS, fault_free.unexpected_task, ("unexpected_task_changes_nothing",)
    ),
    Group(
        "large", WORKERS, fault_free.large_batch, ("workers_agree_on_metrics", "equals_large_batch")
    ),
    Group(
        "audited", WORKERS, fault_free.audited, ("workers_agree_on_metrics", "each_example_once")
    ),
    Group(
        "off",
        WORKERS,
        fault_free.audited_off,
        ("workers_agree_on_metrics", "every_worker_sees_all"),
    ),
    Group(
        "continued",
        WORKERS,
        fault_free.continued,
        ("checkpoint_kept_is_one", "checkpoint_restores", "training_continues"),
    ),
    Group(
        "interrupted",
        WORKERS,
        crashes.interrupted,
        (*RESUMED, "peers_fail_in_time", "restarted_cluster_waits"),
    ),
    Group(
        "interrupted-within",
        WORKERS,
        crashes.interrupted_between_saves,
        ("resumes_at_the_last_save", "final_weights_equal_uninterrupted"),
    ),
    Group(
        "preempted",
        LOOP,
        crashes.preempted,
        ("leaves_after_saving", "final_weights_equal_uninterrupted"),
    ),
    Group("chief-lost", WORKERS, crashes.chief_lost, ("peers_fail_in_time",)),
    Group(
        "servers",
        SERVERS,
        fault_free.healthy,
        (
            *FINISHED,
            *START,
            "step_losses_fall",
            "variables_round_robin",
            "ops_on_own_worker",
            "all_workers_contribute",
            "global_step_counts_all",
            "stops_at_the_limit",
            "servers_serve_until_ended",
            "supervisor_saves",
            "supervisor_writes_summaries",
        ),
    ),
    Group("servers-late", SERVERS, fault_free.late_worker, (*START, "waits_for_all")),
    Group("chief-late", SERVERS, fault_free.late_chief, ("workers_wait_for_chief",)),
    Group(
        "servers-unexpected-task",
        SERVERS,
        fault_free.unexpected_task,
        ("unexpected_task_changes_nothing",),
    ),
    Group(
        "worker-back",
        SERVERS,
        crashes.asynchronous_worker_lost,
        ("survivors_keep_training", "lost_worker_returns"),
    ),
    Group(
        "chief-back",
        SERVERS,
        crashes.asynchronous_chief_lost,
        ("survivors_keep_training", "lost_worker_returns", "chief_restores_the_latest"),
    ),
    Group(
        "server-back",
        SERVERS,
        crashes.server_lost,
        ("no_finish_without_parameter_server", "cluster_restores_the_latest"),
    ),
    Group(
        "aggregates",
        AGGREGATES,
        fault_free.healthy,
        (*FINISHED, *START, "step_losses_fall", "aggregates_accounted", "stops_at_the_limit"),
    ),
    Group(
        "aggregates-worker-back",
        AGGREGATES,
        crashes.aggregated_worker_lost,
        ("peers_block_without_worker", "lost_worker_returns"),
    ),
    Group(
        "aggregates-chief-back",
        AGGREGATES,
        crashes.asynchronous_chief_lost,
        ("lost_worker_returns", "chief_restores_the_latest"),
    ),
    Group("single", SINGLE, fault_free.healthy, (*FINISHED, *LEARNING, "one_chief")),
    Group("single-interrupted", SINGLE, crashes.interrupted, RESUMED),
    Group(
        "mirrored",
        MIRRORED,
        fault_free.healthy,
        (*FINISHED, *LEARNING, "replica_on_each_device", "replicas_in_sync"),
    ),
    Group("mirrored-large", MIRRORED, fault_free.large_batch, ("equals_large_batch",)),
    Group("mirrored-four", MIRRORED, fault_free.four_replicas, ("equals_large_batch",)),
    Group("four", WORKERS, fault_free.four_replicas, ("equals_large_batch",)),
    Group("one", WORKERS, fault_free.one_replica, ("equals_large_batch",)),
    Group("moved", WORKERS, restored_elsewhere, ("checkpoint_restores",)),
    Group("moved-equal", MIRRORED, equal_elsewhere, ("equals_large_batch",)),
    Group("mirrored-audited", MIRRORED, fault_free.audited, ("each_example_once",)),
    Group(
        "loaded",
        WORKERS,
        histories.loaded,
        (
            "loaded_export_evaluates_same",
            "export_in_scope_evaluates_same",
            "latest_checkpoint_evaluates_same",
        ),
    ),
    Group(
        "layouts",
        WORKERS,
        histories.layouts,
        ("weights_replicated", "batch_sharded", "gradients_reduced"),
    ),
    Group(
        "refusals",
        WORKERS,
        histories.refusals,
        ("indivisible_batch_refused", "sharded_export_refused"),
    ),
    Group(
        "misconfigured",
        SINGLE,
        histories.misconfigured,
        ("refused_in_one_line", "nothing_overwritten"),
    ),
    Group(
        "callbacks",
        MIRRORED,
        histories.callbacks,
        (
            "learning_rate_follows_schedule",
            "every_epoch_is_saved",
            "event_files_hold_the_metrics",
        ),
    ),
    Group(
        "coordinated",
        coordinated.COORDINATOR,
        coordinated.worker_lost,
        (
            "finishes_requested_steps",
            "steps_accounted",
            "one_chief",
            "cluster_as_given",
            "shards_on_every_server",
            "all_workers_contribute",
            "survivors_keep_training",
            "lost_worker_returns",
            "functions_run_at_least_once",
            "executed_as_scheduled",
        ),
    ),
    Group("coordinated-late", coordinated.FIT, coordinated.late_worker, ("waits_for_all",)),
    Group(
        "coordinated-fit", coordinated.FIT, coordinated.fit_worker_lost, ("coordinator_continues",)
    ),
    Group(
        "coordinated-server",
        coordinated.COORDINATOR,
        coordinated.server_lost,
        ("peers_fail_in_time", "no_finish_without_parameter_server", "lost_server_raises"),
    ),
    Group(
        "fault",
        WORKERS,
        fault_of("sigkill-worker-mid-epoch"),
        (
            "peers_fail_in_time",
            "no_premature_success",
            "training_resumes",
            "loses_at_most_one_save_interval",
        ),
    ),
    Group(
        "fault-damaged",
        WORKERS,
        fault_of("bit-flip-chief-mid-epoch"),
        ("damage_is_detected", "no_premature_success", "final_weights_equal_uninterrupted"),
    ),
    Group(
        "fault-fewer",
        WORKERS,
        fault_of("sigkill-worker-mid-epoch-all_but_the_lost_one"),
        ("smaller_cluster_continues",),
    ),
    Group(
        "fault-saving",
        WORKERS,
        fault_of("sigkill-chief-saving"),
        (
            "peers_fail_in_time",
            "loses_at_most_one_save_interval",
            "final_weights_equal_uninterrupted",
        ),
    ),
    Group(
        "fault-pretending", WORKERS, fault_of("exit-worker-mid-epoch"), ("no_premature_success",)
    ),
    Group("fault-forming", WORKERS, fault_of("sigkill-worker-forming"), ("peers_wait",)),
    Group("fault-ending", WORKERS, fault_of("sigkill-worker-shutting_down"), ("peers_finish",)),
    Group(
        "fault-servers",
        SERVERS,
        fault_of("sigkill-worker-mid-epoch"),
        ("peers_continue", "training_resumes"),
    ),
    *(Group(name, WORKERS, make, (name,)) for name, make in histories.MADE_UP.items()),
)
BY_NAME = {group.name: group for group in GROUPS}


def judge(check: str, outcome: Any) -> str:
    """Return the check's failure message for a scenario's outcome, or "" if the check passes."""
    given = {"run": outcome} if isinstance(outcome, Run) else vars(outcome)
    given = {**given, "limit_s": LIMIT_S}
    wanted = inspect.signature(CHECKS[check]).parameters
    try:
        CHECKS[check](**{name: given[name] for name in wanted if name in given})
    except CheckFailed as failure:
        return str(failure) or "nothing"
    return ""


def judge_all(group: Group, outcome: Any) -> dict[str, str]:
    """Return check -> failure message for those of the group's checks that fail."""
    complaints = {name: judge(name, outcome) for name in group.checks}
    return {name: said for name, said in complaints.items() if said}


@dataclass
class Stage:
    """Run scenarios, each (group, defect) once, as many at a time as the pool has threads."""

    engine: Engine
    directory: Path
    pool: Executor
    scenario: dict[tuple[str, str], Future[Any]] = field(default_factory=dict)

    def run(self, group: str, defect: str = "") -> Future[Any]:
        """Return a future of the group's outcome with a fake that has the defect."""
        if (group, defect) not in self.scenario:
            self.scenario[group, defect] = self.pool.submit(self._run, BY_NAME[group], defect)
        return self.scenario[group, defect]

    def _run(self, group: Group, defect: str) -> Any:
        name = f"{group.name}-{defect or 'healthy'}"
        directory = self.directory / name
        directory.mkdir()
        # It numbers its own clusters, and never uses another defect's run as its reference.
        own: dict[str, Any] = {"clusters": itertools.count(1), "references": SingleFlight()}
        engine = replace(self.engine, prefix=f"{name}-", **own)
        return group.scenario(FakeCase(engine, directory, group.trainer, defect))
