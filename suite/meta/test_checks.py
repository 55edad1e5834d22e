"""Tests that each check fails for exactly one injected defect, and passes a healthy trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from suite.harness.cluster import diagnostics
from suite.harness.cluster.launcher import Engine
from suite.harness.core.history import Event, Run
from suite.harness.core.outcomes import Misconfigured
from suite.meta import fakes, histories
from suite.meta.groups import BY_NAME, CHECKS, LIMIT_S, Stage, judge, judge_all

AT_ONCE = 4  # scenarios, which mostly wait

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
    "unexpected_task_changes_nothing": ("intruder", "trains_beside_the_cluster"),
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
    "files_sharded": ("files_sharded", "reads_a_neighbours_file"),
    "too_few_files_refused": ("too_few_files_refused", "does_not_say_why"),
    "outside_scope_is_not_synchronized": (
        "outside_scope_is_not_synchronized",
        "distributes_it_all_the_same",
    ),
    "inside_scope_is_synchronized": ("inside_scope_is_synchronized", "drifts_apart"),
    "promise_is_kept": ("promise_is_kept", "observes_a_deviation"),
    "program_keeps_its_signal_handler": (
        "program_keeps_its_signal_handler",
        "replaces_the_handler",
    ),
    "local_server_answers": ("local_server_answers", "answers_only_itself"),
    "fresh_gradients_are_averaged": ("fresh_gradients_are_averaged", "adds_them_up"),
    "model_checkpoint_does_not_resume": ("model_checkpoint_does_not_resume", "resumes_after_all"),
    "shared_backup_collides": ("shared_backup_collides", "keeps_the_backup"),
    "separate_backup_resumes": ("separate_backup_resumes", "loses_the_backup"),
    "side_evaluator_agrees": ("side_evaluator_agrees", "evaluates_something_else"),
    "loaded_export_evaluates_same": ("loaded", "loads_another_export"),
    "export_in_scope_evaluates_same": ("loaded", "loads_another_in_scope"),
    "latest_checkpoint_evaluates_same": ("loaded", "loads_an_older_checkpoint"),
    "assigned_is_read": ("assigned_is_read", "reads_what_was"),
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
    "own_share_in_every_pass": ("own_share_in_every_pass", "changes_shares"),
    "workers_shuffle_differently": ("workers_shuffle_differently", "shuffles_alike"),
    "saves_first_and_last": ("saves_first_and_last", "saves_too_late"),
    "evaluates_the_latest": ("evaluates_the_latest", "reports_another_step"),
    "eager_execution_is_refused": ("eager_execution_is_refused", "trains_eagerly"),
    "predictions_agree": ("predictions_agree", "predicts_something_else"),
    "mode_is_required": ("mode_is_required", "predicts_without_a_mode"),
    "api_present_or_removed": ("api_present_or_removed", "is_still_there"),
    "collective_results_are_right": ("collective_results_are_right", "halves_one_value"),
    "tensors_are_packed": ("tensors_are_packed", "heeds_no_options"),
}

# (group, defect) -> checks: several checks find a defect with several effects.
SEVERAL = {
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


@pytest.fixture(scope="session")
def stage(
    request: pytest.FixtureRequest,
    fake_engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """Run all scenarios that the selected tests need, several at a time."""
    directory = tmp_path_factory.mktemp("checks")
    engine = fakes.toy_engine(fake_engine, directory, LIMIT_S)
    specs = (getattr(item, "callspec", None) for item in request.session.items)
    asked = [spec.params for spec in specs if spec is not None]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = Stage(engine, directory, pool)
        if not hasattr(request.config, "workerinput"):  # a worker would run others' scenarios
            for params in asked:
                if params.keys() >= {"group", "defect"}:
                    found.run(params["group"], params["defect"])
        yield found
    engine.stop()


@pytest.mark.parametrize(("group", "defect"), [(name, "") for name in BY_NAME], ids=BY_NAME)
def test_a_healthy_trainer_passes_all_checks(group: str, defect: str, stage: Stage) -> None:
    assert judge_all(BY_NAME[group], stage.run(group, defect).result()) == {}


@pytest.mark.parametrize(("group", "defect"), ALLOWED)
def test_what_is_allowed_passes_all_checks(group: str, defect: str, stage: Stage) -> None:
    assert judge_all(BY_NAME[group], stage.run(group, defect).result()) == {}


@pytest.mark.parametrize(("check", "group", "defect"), [(c, *r) for c, r in RED.items()], ids=RED)
def test_a_defect_makes_exactly_this_check_red(
    check: str, group: str, defect: str, stage: Stage
) -> None:
    complaints = judge_all(BY_NAME[group], stage.run(group, defect).result())
    assert list(complaints) == [check], complaints


@pytest.mark.parametrize(("group", "defect"), SEVERAL)
def test_a_defect_in_several_ways_is_found_in_all(group: str, defect: str, stage: Stage) -> None:
    complaints = judge_all(BY_NAME[group], stage.run(group, defect).result())
    assert set(complaints) == SEVERAL[group, defect], complaints


@pytest.mark.parametrize(
    ("check", "metric", "values"),
    [
        ("loss_falls", "loss", (2.300, 2.295, 2.290)),
        ("accuracy_rises", "accuracy", (0.10, 0.11, 0.12)),
    ],
)
def test_what_chance_gives_is_not_learning(check: str, metric: str, values: tuple[float, ...]):
    """Each epoch is better than the one before, as in one of six runs that learn nothing."""
    epochs = tuple(
        Event("epoch", float(i), "worker/0", 0, {"metrics": {metric: value}})
        for i, value in enumerate(values)
    )
    run = Run(fakes.SINGLE, ("worker/0",), ("worker/0",), "none", "none", epochs)
    assert "only" in judge(check, run)


@pytest.mark.parametrize(
    ("told_s", "ended_s", "by_harness", "complaint"),
    [
        (1.0, 9.0, False, ""),
        (3.0, 9.0, False, r"not failed 2\.0 s after .* \(`peer_lost` came after 3\.0 s\)"),
        (1.0, 9.0, True, r"failed 1\.0 s after worker/1 was lost, and had not left 8\.0 s later"),
        (None, 1.0, False, r"worker/0 failed .* but by an error that names no lost peer"),
        (None, 3.0, False, r"not failed 2\.0 s after .* \(`exited` came after 3\.0 s\)"),
        (None, 1.0, True, r"not failed 2\.0 s after .* kill came after 1\.0 s\)"),
    ],
)
def test_a_peer_fails_when_it_tells_of_it_and_must_leave_by_itself(
    told_s: float | None, ended_s: float, by_harness: bool, complaint: str
) -> None:
    events = [
        Event("fault_started", 0.0, "worker/1", 0, {"fault": "sigkill"}),
        Event("exited", ended_s, "worker/0", 0, {"ended_by_harness": by_harness, "code": 1}),
    ]
    if told_s is not None:
        events.insert(1, Event("peer_lost", told_s, "worker/0", 0, {"error": "gone"}))
    run = Run(fakes.WORKERS, histories.TASKS, histories.TASKS, "ring", "none", tuple(events))
    said = judge("peers_fail_in_time", run)
    assert bool(said) == bool(complaint)
    assert re.search(complaint, said or ""), said


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_is_content_with_nothing(check: str) -> None:
    nothing = Run(fakes.WORKERS, histories.TASKS, histories.TASKS, "ring", "none", ())
    outcome = SimpleNamespace(
        run=nothing,
        reference=nothing,
        then=nothing,
        fewer=nothing,
        unexpected="worker/2",
        gone=True,
    )
    outcome.misconfigured = Misconfigured(nothing, {}, {})
    assert judge(check, outcome)


def test_of_who_hangs_the_history_says_where_and_who_is_missing(stage: Stage) -> None:
    run = stage.run("fault", "hangs_when_a_peer_dies").result().run
    (hung,) = run.of("hung")
    assert (hung.task, hung["missing"]) == ("worker/0", ["worker/1"])
    assert re.search(r"\w+ \(fake_\w+\.py:\d+\)", hung["waits_in"]), hung["waits_in"]
    told = diagnostics.hangs(run)
    assert told.splitlines() == [
        "missing: worker/1",
        f"worker/0 waits in {hung['waits_in']}",
    ]


def test_every_check_has_a_defect_that_it_finds() -> None:
    assert RED.keys() == CHECKS.keys()
