"""Renamed identifiers: names in records of earlier versions, with their current names.

Readers apply these tables, so that `history` and `compare` follow a series across a rename. Every
rename is a row of these tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

FILES: Mapping[str, str] = MappingProxyType(
    {"suite/faults/test_fault_table.py": "suite/faults/test_fault_matrix.py"}
)
TESTS: Mapping[str, str] = MappingProxyType(
    {
        "test_without_sharding_every_worker_sees_the_last_partial_batch_too": "test_unsharded_workers_see_last_partial_batch",
        "test_a_pass_that_ends_with_a_partial_batch_has_each_example_once": "test_partial_last_batch_has_each_example_once",
        "test_an_evaluator_follows_the_checkpoints_of_chief_and_workers": "test_evaluator_follows_chief_checkpoints",
        "test_a_step_reads_what_it_has_assigned_with_all_reduces_apart": "test_step_reads_assigned_value_uncombined_all_reduces",
        "test_a_model_in_shards_exports_once_it_is_reloaded_replicated": "test_sharded_model_exports_after_replicated_reload",
        "test_a_model_outside_the_scope_altogether_is_not_kept_in_step": "test_model_outside_scope_is_not_synchronized",
        "test_the_optimizer_of_keras_is_right_with_all_reduces_apart": "test_keras_optimizer_correct_uncombined_all_reduces",
        "test_the_figures_of_long_runs_are_drawn_from_where_ours_are": "test_long_published_figures_within_prediction_interval",
        "test_a_model_built_outside_the_scope_is_not_kept_in_step": "test_model_built_outside_scope_is_not_synchronized",
        "test_the_documents_figures_are_drawn_from_where_ours_are": "test_published_figures_within_prediction_interval",
        "test_a_task_beside_the_cluster_evaluates_its_checkpoints": "test_separate_task_evaluates_cluster_checkpoints",
        "test_workers_beside_servers_evaluate_as_one_process_does": "test_workers_evaluate_like_single_process",
        "test_the_latest_checkpoint_restores_and_training_goes_on": "test_latest_checkpoint_restores_and_training_continues",
        "test_the_documents_own_data_resume_where_they_were": "test_documented_dataset_resumes_at_its_position",
        "test_told_to_leave_fit_saves_where_keras_heeds_it": "test_fit_saves_on_sigterm_where_keras_handles_it",
        "test_all_stand_still_until_a_lost_worker_is_back": "test_peers_block_until_lost_worker_returns",
        "test_there_is_no_estimator_where_it_was_removed": "test_estimator_absent_where_removed",
        "test_a_tf_config_that_makes_no_sense_is_refused": "test_invalid_tf_config_is_rejected",
        "test_fit_goes_on_without_a_worker_and_with_it": "test_fit_continues_after_worker_loss_and_return",
        "test_told_to_leave_all_save_leave_and_go_on": "test_preemption_saves_and_resumes",
        "test_several_replicas_get_where_one_gets": "test_converges_like_single_process",
        "test_nobody_finishes_without_a_server": "test_no_worker_finishes_without_parameter_server",
        "test_the_document_s_bare_calls_train": "test_documented_snippets_train",
        "test_what_was_chosen_is_observable": "test_actual_backend_is_observable",
        "test_a_stranger_cannot_join": "test_unexpected_worker_cannot_join",
        "test_what_a_fault_does": "test_fault_matrix",
        "test_a_lost_worker_comes_back": "test_lost_worker_returns",
        "test_a_run_ends_as_asked": "test_run_finishes_requested_steps",
        "test_bytes_per_pack_of_the_strategy_are_heeded": "test_bytes_per_pack_of_strategy_is_applied",
        "test_bytes_per_pack_of_a_call_are_heeded": "test_bytes_per_pack_of_call_is_applied",
        "test_a_step_reads_what_it_has_assigned": "test_step_reads_assigned_value",
        "test_a_model_built_inside_the_scope_is": "test_model_built_inside_scope_is_synchronized",
        "test_only_what_the_chief_saved_remains": "test_only_chief_checkpoints_remain",
        "test_the_others_wait_until_the_chief_has_initialised": "test_workers_wait_for_chief_initialization",
        "test_each_worker_has_a_share_of_its_own": "test_each_worker_reads_its_own_shard",
    }
)
FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "cut": "link-down",
        "drop-in": "drop-ingress",
        "drop-out": "drop-egress",
        "blink": "link-flap",
        "narrow": "throttle",
        "late": "delayed-start",
        "flipped": "bit-flip",
    }
)
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "fault_noticed_s": "fault_detection_s",
        "peer_loss_noticed_s": "peer_loss_detection_s",
        "server_loss_noticed_s": "server_loss_detection_s",
    }
)
# A scenario of the fault matrix ("cut-worker-mid-epoch"), alone or in the parameters of a test.
FAULT_SCENARIO = re.compile(
    rf"(?:(?<=[\[-])|^)({'|'.join(FAULTS)})(?=-(?:chief|worker|ps|evaluator)-)"
)


def fault(name: str) -> str:
    """Return the present name of a fault."""
    return FAULTS.get(name, name)


def metric(name: str) -> str:
    """Return the present name of a metric."""
    return METRICS.get(name, name)


def scenario(name: str) -> str:
    """Return the present name of a scenario."""
    return FAULT_SCENARIO.sub(lambda match: FAULTS[match[1]], name, count=1)


def test_id(node_id: str) -> str:
    """Return the present id of a test, `file::name[parameters]`."""
    file, separator, rest = node_id.partition("::")
    name, bracket, parameters = rest.partition("[")
    parameters = scenario(bracket + parameters)
    return FILES.get(file, file) + separator + TESTS.get(name, name) + parameters
