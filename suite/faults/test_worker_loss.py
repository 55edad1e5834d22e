"""Loss of a worker: peers fail or continue, as the document says; a restart resumes."""

import pytest

from suite.harness.checks import checkpoints, coordinator, parameter_servers, restart, supervisor
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import crashes


# An Estimator promises nothing: its peers fail or hang, depending on their current operation.
@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(
    families=("mwms",),
    distributed=True,
    synchronous=True,
    controls=("epochs", "steps-per-epoch", "model-dir"),
)
@scenario(crashes.interrupted)
def test_peers_of_a_killed_worker_fail_in_time(outcome, deadlines, record):
    run = outcome.run
    for _, detection_s in recovery.detection_s(run):
        record("peer_loss_detection_s", detection_s, "s", "lower", fault="sigkill")
    restart.peers_fail_in_time(run, deadlines.detect_s)


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(
    families=("mwms", "estimator"), distributed=True, synchronous=True, level="observed"
)
@scenario(crashes.worker_frozen)
def test_peers_of_a_frozen_worker_fail_in_time(outcome, deadlines, record):
    for _, detection_s in recovery.detection_s(outcome):
        record("peer_loss_detection_s", detection_s, "s", "lower", fault="sigstop")
    restart.peers_fail_in_time(outcome, deadlines.detect_s)


@pytest.mark.claim("mwms/cluster-pauses")
@pytest.mark.cases(
    distributed=True,
    synchronous=True,
    controls=("epochs", "steps-per-epoch", "model-dir"),
)
@scenario(crashes.interrupted)
def test_a_restarted_cluster_waits_for_the_lost_worker(outcome, record):
    run = outcome.run
    record("resumed_s", recovery.resumed_s(run), "s", "lower", fault="sigkill")
    restart.restarted_cluster_waits(run)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
    "estimator/resumes",
)
@pytest.mark.cases(
    flags=("order",),
    controls=("epochs", "steps-per-epoch", "model-dir"),
    synchronous=True,
    events=("epoch",),
)
@scenario(crashes.interrupted)
def test_a_restart_resumes_the_interrupted_epoch(outcome):
    restart.resumes_interrupted_epoch(outcome.run)
    restart.restored_state_equals_uninterrupted(outcome.run, outcome.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
    "estimator/resumes",
)
@pytest.mark.cases(
    flags=("order",),
    synchronous=True,
    events=("epoch",),
    controls=("epochs", "steps-per-epoch", "model-dir"),
    deterministic=True,
)
@scenario(crashes.interrupted)
def test_the_partial_epoch_leaves_no_trace(outcome):
    restart.partial_epoch_leaves_no_trace(outcome.run, outcome.reference)
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)


RESTARTS = (
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
    "estimator/resumes",
)


@pytest.mark.claim(*RESTARTS)
@pytest.mark.cases(
    of_user=True, synchronous=True, events=("step", "checkpoint_saved"), level="observed"
)
@scenario(crashes.restarted_after_save)
def test_restart_restores_the_latest_save(outcome):
    restart.latest_save_is_restored(outcome.run)


@pytest.mark.claim(*RESTARTS)
@pytest.mark.cases(
    of_user=True,
    synchronous=True,
    events=("step", "checkpoint_saved"),
    controls=("epochs", "steps-per-epoch"),
)
@scenario(crashes.restarted_after_save)
def test_restarted_run_ends_at_its_last_step(outcome):
    restart.restarted_run_ends_as_usual(outcome.run, outcome.reference)


@pytest.mark.claim(*RESTARTS)
@pytest.mark.cases(
    of_user=True,
    synchronous=True,
    events=("step", "checkpoint_saved", "weights"),
    controls=("seed",),
    deterministic=True,
)
@scenario(crashes.restarted_after_save)
def test_restarted_run_ends_with_its_usual_weights(outcome):
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(
    of_user=True,
    distributed=True,
    synchronous=True,
    events=("weights", "checkpoint_saved"),
    level="observed",
)
@scenario(crashes.restarted_after_save)
def test_restarted_workers_agree_on_weights(outcome):
    restart.restarted_workers_agree(outcome.run)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
)
@pytest.mark.cases(flags=("order",), fit=True)
@scenario(crashes.interrupted_as_documented)
def test_documented_dataset_resumes_at_its_position(outcome, record):
    cost = recovery.cost_in_loss(outcome.run, outcome.reference)
    record("loss_after_restart_difference", cost, "1", fault="sigkill")
    restart.restored_state_equals_uninterrupted(outcome.run, outcome.reference)
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
    "estimator/resumes",
)
@pytest.mark.cases(flags=("order", "save-every"))
@scenario(crashes.interrupted_between_saves)
def test_a_restart_resumes_at_the_last_save_within_an_epoch(outcome):
    restart.resumes_at_the_last_save(outcome.run)
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)


@pytest.mark.claim("mirrored/restart-resumes", "single/restart-resumes")
@pytest.mark.cases(flags=("order",), fit=True, distributed=False)
@scenario(crashes.interrupted_while_saving)
def test_a_kill_while_saving_leaves_the_backup_before(outcome):
    restart.final_weights_equal_uninterrupted(outcome.run, outcome.reference)


@pytest.mark.claim("mwms/backup-removed")
@pytest.mark.cases(flags=("order",), fit=True)
@scenario(crashes.interrupted)
def test_the_backup_is_removed_at_the_end(outcome):
    checkpoints.backup_removed(outcome.run)


@pytest.mark.claim("ps1/worker-loss", "ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps1", "ps2"), aggregates=False, events=("step",), level="observed")
@scenario(crashes.asynchronous_worker_lost)
def test_survivors_keep_training_without_a_worker(outcome):
    parameter_servers.survivors_keep_training(outcome)


@pytest.mark.claim("ps1/worker-loss", "ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps1", "ps2"), aggregates=False, events=("step",), level="observed")
@scenario(crashes.asynchronous_worker_lost)
def test_lost_worker_returns(outcome):
    parameter_servers.lost_worker_returns(outcome)


@pytest.mark.claim("ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps2",), fit=True, events=("epoch",), level="observed")
@scenario(crashes.fit_worker_lost)
def test_fit_continues_after_worker_loss_and_return(outcome):
    coordinator.coordinator_continues(outcome)


@pytest.mark.claim("ps1/sync-worker-loss")
@pytest.mark.cases(families=("ps1",), aggregates=True, events=("step",), level="observed")
@scenario(crashes.aggregated_worker_lost)
def test_peers_block_until_lost_worker_returns(outcome):
    supervisor.peers_block_without_worker(outcome)
    parameter_servers.lost_worker_returns(outcome)


@pytest.mark.claim("ps2/at-least-once")
@pytest.mark.cases(events=("scheduled", "checkpoint_saved"), level="observed")
@scenario(crashes.asynchronous_worker_lost)
def test_functions_of_a_lost_worker_run_at_least_once(outcome):
    coordinator.functions_run_at_least_once(outcome)
    coordinator.executed_as_scheduled(outcome)
