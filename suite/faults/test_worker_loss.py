"""Loss of a worker: the others fail or go on, as the document says; a restart resumes."""

import pytest

from suite.harness import checks
from suite.harness.metrics import recovery
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import crashes


# Of an Estimator nothing is promised: its peers fail or hang, by what they do at that moment.
@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(families=("mwms",), distributed=True, synchronous=True)
@plays(crashes.interrupted)
def test_peers_of_a_killed_worker_fail_in_time(played, deadlines, record):
    run = played.run
    for _, noticed_s in recovery.noticed_s(run):
        record("peer_loss_noticed_s", noticed_s, "s", "lower", fault="sigkill")
    checks.peers_fail_in_time(run, deadlines.detect_s)


@pytest.mark.claim("mwms/peers-fail")
@pytest.mark.cases(families=("mwms", "estimator"), distributed=True, synchronous=True)
@plays(crashes.worker_frozen)
def test_peers_of_a_frozen_worker_fail_in_time(played, deadlines, record):
    for _, noticed_s in recovery.noticed_s(played):
        record("peer_loss_noticed_s", noticed_s, "s", "lower", fault="sigstop")
    checks.peers_fail_in_time(played, deadlines.detect_s)


@pytest.mark.claim("mwms/cluster-pauses")
@pytest.mark.cases(distributed=True, synchronous=True)
@plays(crashes.interrupted)
def test_a_restarted_cluster_waits_for_the_lost_worker(played, record):
    run = played.run
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
@plays(crashes.interrupted)
def test_a_restart_resumes_the_interrupted_epoch(played):
    checks.resumes_interrupted_epoch(played.run)
    checks.restored_state_equals_uninterrupted(played.run, played.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
)
@pytest.mark.cases(flags=("order",))
@plays(crashes.interrupted)
def test_the_partial_epoch_leaves_no_trace(played):
    checks.partial_epoch_leaves_no_trace(played.run, played.reference)
    checks.final_weights_equal_uninterrupted(played.run, played.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
)
@pytest.mark.cases(flags=("order",), fit=True)
@plays(crashes.interrupted_as_documented)
def test_the_documents_own_data_resume_where_they_were(played, record):
    cost = recovery.cost_in_loss(played.run, played.reference)
    record("loss_after_restart_difference", cost, "1", fault="sigkill")
    checks.restored_state_equals_uninterrupted(played.run, played.reference)
    checks.final_weights_equal_uninterrupted(played.run, played.reference)


@pytest.mark.claim(
    "mwms/restart-resumes",
    "mwms/loop-resumes",
    "mirrored/restart-resumes",
    "single/restart-resumes",
    "dtensor/restart-resumes",
    "estimator/resumes",
)
@pytest.mark.cases(flags=("order", "save-every"))
@plays(crashes.interrupted_between_saves)
def test_a_restart_resumes_at_the_last_save_within_an_epoch(played):
    checks.resumes_at_the_last_save(played.run)
    checks.final_weights_equal_uninterrupted(played.run, played.reference)


@pytest.mark.claim("mirrored/restart-resumes", "single/restart-resumes")
@pytest.mark.cases(flags=("order",), fit=True, distributed=False)
@plays(crashes.interrupted_while_saving)
def test_a_kill_while_saving_leaves_the_backup_before(played):
    checks.final_weights_equal_uninterrupted(played.run, played.reference)


@pytest.mark.claim("mwms/backup-removed")
@pytest.mark.cases(flags=("order",), fit=True)
@plays(crashes.interrupted)
def test_the_backup_is_removed_at_the_end(played):
    checks.backup_removed(played.run)


@pytest.mark.claim("ps1/worker-loss", "ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps1", "ps2"), aggregates=False, events=("step",))
@plays(crashes.asynchronous_worker_lost)
def test_survivors_keep_training_without_a_worker(played):
    checks.survivors_keep_training(played)


@pytest.mark.claim("ps1/worker-loss", "ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps1", "ps2"), aggregates=False, events=("step",))
@plays(crashes.asynchronous_worker_lost)
def test_a_lost_worker_comes_back(played):
    checks.lost_worker_comes_back(played)


@pytest.mark.claim("ps2/worker-loss-transparent")
@pytest.mark.cases(families=("ps2",), fit=True)
@plays(crashes.fit_worker_lost)
def test_fit_goes_on_without_a_worker_and_with_it(played):
    checks.coordinator_goes_on(played)


@pytest.mark.claim("ps1/sync-worker-loss")
@pytest.mark.cases(families=("ps1",), aggregates=True)
@plays(crashes.aggregated_worker_lost)
def test_all_stand_still_until_a_lost_worker_is_back(played):
    checks.all_stand_still_without_one(played)
    checks.lost_worker_comes_back(played)


@pytest.mark.claim("ps2/at-least-once")
@pytest.mark.cases(events=("scheduled",))
@plays(crashes.asynchronous_worker_lost)
def test_functions_of_a_lost_worker_run_at_least_once(played):
    checks.functions_run_at_least_once(played)
    checks.executed_as_scheduled(played)
