"""Loss of a worker: the others fail or go on, as the document says; a restart resumes."""

import pytest

from suite.harness import checks, disasters, recovery


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(distributed=True, synchronous=True)
def test_peers_of_a_killed_worker_fail_in_time(scenario, deadlines, record):
    run = scenario(disasters.interrupted).run
    for _, noticed_s in recovery.noticed_s(run):
        record("peer_loss_noticed_s", noticed_s, "s", "lower", fault="sigkill")
    checks.peers_fail_in_time(run, deadlines.detect_s)


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(families=("mwms",), distributed=True, synchronous=True)
def test_peers_of_a_frozen_worker_fail_in_time(scenario, deadlines, record):
    run = scenario(disasters.worker_frozen)
    for _, noticed_s in recovery.noticed_s(run):
        record("peer_loss_noticed_s", noticed_s, "s", "lower", fault="sigstop")
    checks.peers_fail_in_time(run, deadlines.detect_s)


@pytest.mark.claim("mwms/cluster-pauses")
@pytest.mark.cases(distributed=True, synchronous=True)
def test_a_restarted_cluster_waits_for_the_lost_worker(scenario, record):
    run = scenario(disasters.interrupted).run
    record("trained_again_s", recovery.trained_again_s(run), "s", "lower", fault="sigkill")
    checks.restarted_cluster_waits(run)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
    "estimator/resumes",
)
@pytest.mark.cases(flags=("order",))
def test_a_restart_resumes_the_interrupted_epoch(scenario):
    pair = scenario(disasters.interrupted)
    checks.resumes_interrupted_epoch(pair.run)
    checks.restored_state_equals_uninterrupted(pair.run, pair.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
)
@pytest.mark.cases(flags=("order",))
def test_the_partial_epoch_leaves_no_trace(scenario):
    pair = scenario(disasters.interrupted)
    checks.partial_epoch_leaves_no_trace(pair.run, pair.reference)
    checks.final_weights_equal_uninterrupted(pair.run, pair.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
)
@pytest.mark.cases(flags=("order",), fit=True)
def test_the_documents_own_data_resume_where_they_were(scenario, record):
    pair = scenario(disasters.interrupted_as_documented)
    cost = recovery.cost_in_loss(pair.run, pair.reference)
    record("loss_after_restart_difference", cost, "1", fault="sigkill")
    checks.restored_state_equals_uninterrupted(pair.run, pair.reference)
    checks.final_weights_equal_uninterrupted(pair.run, pair.reference)


@pytest.mark.claim("mwms/backup-removed")
@pytest.mark.cases(flags=("order",), fit=True)
def test_the_backup_is_removed_at_the_end(scenario):
    checks.backup_removed(scenario(disasters.interrupted).run)


@pytest.mark.claim("ps1/worker-loss", "ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps1", "ps2"), aggregates=False, events=("step",))
def test_survivors_keep_training_without_a_worker(scenario):
    checks.survivors_keep_training(scenario(disasters.asynchronous_worker_lost))


@pytest.mark.claim("ps1/worker-loss", "ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps1", "ps2"), aggregates=False, events=("step",))
def test_a_lost_worker_comes_back(scenario):
    checks.lost_worker_comes_back(scenario(disasters.asynchronous_worker_lost))


@pytest.mark.claim("ps1/sync-worker-loss")
@pytest.mark.cases(families=("ps1",), aggregates=True)
def test_all_stand_still_until_a_lost_worker_is_back(scenario):
    run = scenario(disasters.aggregated_worker_lost)
    checks.all_stand_still_without_one(run)
    checks.lost_worker_comes_back(run)


@pytest.mark.claim("ps2/at-least-once")
@pytest.mark.cases(events=("scheduled",))
def test_functions_of_a_lost_worker_run_at_least_once(scenario):
    checks.functions_run_at_least_once(scenario(disasters.asynchronous_worker_lost))
