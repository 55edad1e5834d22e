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
from suite.meta.fakes import AGGREGATES, MIRRORED, SERVERS, SINGLE, WORKERS, FakeCase

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


# Unusual behavior that is allowed: (group, "defect").
ALLOWED = [
    # It fails in time, although closing its data set takes longer than that.
    ("interrupted", "takes_its_time_to_leave"),
    ("fault", "takes_its_time_to_leave"),
]

# check -> (group, defect): with the defect, this is the only one of the group's checks to fail.
RED = {
    # the two slowest ones first, so that the others run meanwhile
    "peers_fail_in_time": ("interrupted", "hangs_when_a_peer_dies"),
    "survivors_keep_training": ("worker-back", "pauses_without_its_peers"),
    # synchronous training
    "finishes_requested_steps": ("healthy", "finishes_early"),
    "steps_accounted": ("healthy", "counts_a_step_twice"),
    "is_seldom_retraced": ("healthy", "retraces_its_step"),
    "epochs_accounted": ("healthy", "counts_other_steps_in_its_epochs"),
    "examples_accounted": ("healthy", "doubles_its_batch"),
    "one_chief": ("healthy", "two_chiefs"),
    "cluster_as_given": ("healthy", "invents_a_worker"),
    "server_target_logged": ("healthy", "logs_no_target"),
    "loss_falls": ("healthy", "adds_up_the_loss"),
    "accuracy_rises": ("healthy", "scores_wrong_labels"),
    "workers_agree_on_metrics": ("healthy", "reports_local_metrics"),
    "workers_agree_on_weights": ("healthy", "averages_too_late"),
    "validation_agrees": ("healthy", "validates_alone"),
    "collective_is_known": ("healthy", "logs_no_collective"),
    "backend_as_requested": ("healthy", "asks_for_another_backend"),
    "save_paths_distinct": ("healthy", "writes_one_path"),
    "only_chief_keeps": ("healthy", "leaves_temporaries"),
    "exports_identical": ("healthy", "exports_other_weights"),
    "converges_to_baseline": ("baseline", "learns_slowly"),
    "waits_for_all": ("late", "starts_alone"),
    "trains_as_a_cluster_of_one": ("alone", "needs_tf_config"),
    "replica_on_each_device": ("mirrored", "counts_itself_as_one"),
    "replicas_in_sync": ("mirrored", "lets_a_copy_drift"),
    "unexpected_task_changes_nothing": ("unexpected-task", "trains_without_joining"),
    "equals_large_batch": ("large", "divides_by_its_own_batch"),
    "each_example_once": ("audited", "repeats_examples"),
    "every_worker_sees_all": ("off", "shards_anyway"),
    "checkpoint_kept_is_one": ("continued", "keeps_every_checkpoint"),
    "checkpoint_restores": ("continued", "forgets_the_optimizer"),
    "training_continues": ("continued", "freezes_after_a_restore"),
    "restarted_cluster_waits": ("interrupted", "starts_alone"),
    "resumes_interrupted_epoch": ("interrupted", "forgets_the_step_count"),
    "resumes_at_the_last_save": ("interrupted-within", "saves_epochs_only"),
    "restored_state_equals_uninterrupted": ("interrupted", "restores_slots_late"),
    "partial_epoch_leaves_no_trace": ("interrupted", "keeps_partial_metrics"),
    "final_weights_equal_uninterrupted": ("interrupted", "repeats_the_interrupted_epoch"),
    "backup_removed": ("interrupted", "leaves_its_backup"),
    "leaves_after_saving": ("preempted", "leaves_without_saving"),
    # parameter servers
    "step_losses_fall": ("servers", "never_learns"),
    "variables_round_robin": ("servers", "puts_all_on_one_server"),
    "ops_on_own_worker": ("servers", "computes_on_a_server"),
    "all_workers_contribute": ("servers", "lets_the_chief_do_it_all"),
    "global_step_counts_all": ("servers", "counts_only_the_chief"),
    "stops_at_the_limit": ("servers", "runs_past_the_limit"),
    "servers_serve_until_ended": ("servers", "leaves_with_the_workers"),
    "supervisor_saves": ("servers", "never_saves"),
    "supervisor_writes_summaries": ("servers", "writes_no_summaries"),
    "aggregates_accounted": ("aggregates", "makes_steps_in_secret"),
    "peers_block_without_worker": ("aggregates-worker-back", "goes_on_without_its_peers"),
    "workers_wait_for_chief": ("chief-late", "starts_before_the_chief"),
    "lost_worker_returns": ("worker-back", "leaves_again"),
    "chief_restores_the_latest": ("chief-back", "resumes_from_scratch"),
    "cluster_restores_the_latest": ("server-back", "restores_an_older_step"),
    "no_finish_without_parameter_server": ("server-back", "ignores_a_lost_server"),
    # the fault matrix
    "peers_continue": ("fault-servers", "pauses_without_its_peers"),
    "peers_wait": ("fault-forming", "starts_alone"),
    "peers_finish": ("fault-ending", "lingers_at_the_end"),
    "no_premature_success": ("fault-pretending", "exits_0_when_a_peer_dies"),
    "training_resumes": ("fault-servers", "leaves_again"),
    "loses_at_most_one_save_interval": ("fault", "resumes_from_scratch"),
    "damage_is_detected": ("fault-damaged", "trusts_a_damaged_save"),
    "smaller_cluster_continues": ("fault-fewer", "resumes_from_scratch"),
    # hand-written histories of a coordinator
    "shards_on_every_server": ("coordinated", "keeps_all_parts_together"),
    "functions_run_at_least_once": ("coordinated", "repeats_a_round"),
    "executed_as_scheduled": ("coordinated", "takes_what_another_left"),
    "coordinator_continues": ("coordinated-fit", "waits_for_the_lost_worker"),
    "lost_server_raises": ("coordinated-server", "dies_of_something_else"),
    # hand-written histories of programs
    "loaded_export_evaluates_same": ("loaded", "loads_another_export"),
    "export_in_scope_evaluates_same": ("loaded", "loads_another_in_scope"),
    "latest_checkpoint_evaluates_same": ("loaded", "loads_an_older_checkpoint"),
    "weights_replicated": ("layouts", "lets_a_device_drift"),
    "batch_sharded": ("layouts", "gives_all_the_same_batch"),
    "gradients_reduced": ("layouts", "keeps_its_own_gradient"),
    "indivisible_batch_refused": ("refusals", "drops_the_rest"),
    "sharded_export_refused": ("refusals", "exports_shards"),
    "refused_in_one_line": ("misconfigured", "explains_at_length"),
    "nothing_overwritten": ("misconfigured", "starts_anew"),
    "learning_rate_follows_schedule": ("callbacks", "keeps_its_learning_rate"),
    "every_epoch_is_saved": ("callbacks", "saves_every_other_epoch"),
    "event_files_hold_the_metrics": ("callbacks", "writes_other_event_files"),
    # an observed run, and one that reports itself
    "observed_cluster_equal": ("observed", "takes_another_backend"),
    "observed_steps_equal": ("observed", "counts_a_step_twice"),
    "observed_saves_equal": ("observed", "misses_a_save"),
    "observed_restores_equal": ("observed", "forgets_a_restore"),
    "observed_weights_equal": ("observed", "digests_something_else"),
    "observed_slots_equal": ("observed", "misses_a_slot"),
    "observed_epochs_equal": ("observed", "reports_other_metrics"),
    "observed_end_equals": ("observed", "ends_too_early"),
    **{name: (name, defect) for name, (_, defect) in histories.MADE_UP.items()},
}

OBSERVED = (
    "observed_cluster_equal",
    "observed_steps_equal",
    "observed_saves_equal",
    "observed_restores_equal",
    "observed_weights_equal",
    "observed_slots_equal",
    "observed_epochs_equal",
    "observed_end_equals",
)

# (group, defect) -> checks: several checks find a defect with several effects.
SEVERAL = {
    ("observed", "has_a_broken_hook"): set(OBSERVED),
    # Checks of agreement and equality fail if no weights were updated.
    ("healthy", "never_learns"): {"loss_falls", "accuracy_rises", "workers_agree_on_weights"},
    ("large", "never_learns"): {"equals_large_batch"},
    ("large", "is_apart_early"): {"equals_large_batch"},
    ("large", "is_apart_late"): {"equals_large_batch"},
    ("mirrored", "leaves_a_device_idle"): {"examples_accounted"},
    ("mirrored-large", "leaves_a_device_idle"): {"equals_large_batch"},
    ("interrupted", "forgets_the_optimizer"): {
        "restored_state_equals_uninterrupted",
        "partial_epoch_leaves_no_trace",
        "final_weights_equal_uninterrupted",
    },
    ("interrupted-within", "begins_the_epoch_again"): {"final_weights_equal_uninterrupted"},
    ("interrupted", "exits_0_when_a_peer_dies"): {"peers_fail_in_time"},
    ("interrupted", "ignores_a_lost_peer"): {"peers_fail_in_time"},
    ("interrupted", "gets_an_internal_error_when_a_peer_dies"): {"peers_fail_in_time"},
    ("fresh_gradients_are_averaged", "takes_stale_ones"): {"fresh_gradients_are_averaged"},
    ("normalizes_own_batches", "makes_other_steps"): {"normalizes_own_batches"},
    ("normalizes_own_batches", "updates_one_replica"): {"normalizes_own_batches"},
    ("normalizes_the_whole_batch", "makes_other_steps"): {"normalizes_the_whole_batch"},
    ("draws_masks", "scales_nothing"): {"draws_masks"},
    # Events that the coordinator alone reports, of itself and of its workers.
    ("coordinated", "fails_at_the_end"): {"finishes_requested_steps"},
    ("coordinated", "two_chiefs"): {"one_chief"},
    ("coordinated", "counts_itself"): {"cluster_as_given"},
    ("coordinated", "uses_one_worker"): {"all_workers_contribute", "lost_worker_returns"},
    ("coordinated", "waits_for_the_lost_worker"): {"survivors_keep_training"},
    ("coordinated", "forgets_the_worker"): {"lost_worker_returns"},
    ("coordinated", "loses_a_function"): {
        "finishes_requested_steps",
        "functions_run_at_least_once",
    },
    ("coordinated-late", "trains_without_it"): {"waits_for_all"},
    ("coordinated-fit", "fails_when_it_is_back"): {"coordinator_continues"},
    ("coordinated-fit", "hangs_when_it_is_back"): {"coordinator_continues"},
    ("coordinated-server", "hangs"): {"peers_fail_in_time"},
    ("coordinated-server", "ends_as_if_it_were_done"): {
        "peers_fail_in_time",
        "no_finish_without_parameter_server",
    },
}

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
            "is_seldom_retraced",
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
        WORKERS,
        lambda launch: crashes.preemption(launch, launch.case.trainer, **crashes.PREEMPTIBLE),
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
    Group("observed", WORKERS, histories.observed, OBSERVED),
    *(Group(name, WORKERS, history, (name,)) for name, (history, _) in histories.MADE_UP.items()),
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
