"""Sharding: the examples and files that each worker reads."""

import pytest

from suite.harness.checks import convergence, program_results, sharding
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/autoshard-data", "estimator/input-context")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
@scenario(fault_free.audited)
def test_each_example_is_seen_once_in_a_pass(outcome):
    sharding.each_example_once(outcome)


@pytest.mark.claim("single/converges", "custom-mirrored/exactly-once", "training/each-example-once")
@pytest.mark.cases(flags=("audit-input",), distributed=False)
@scenario(fault_free.audited)
def test_one_process_sees_each_example_once(outcome):
    sharding.each_example_once(outcome)


@pytest.mark.claim("mwms/autoshard-off", "estimator/seeds")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
@scenario(fault_free.audited_off)
def test_without_sharding_every_worker_sees_all(outcome):
    sharding.every_worker_sees_all(outcome)


@pytest.mark.claim("ps1/asynchronous", "training/own-data")
@pytest.mark.cases(flags=("audit-input",), synchronous=False)
@scenario(fault_free.audited_apart)
def test_each_asynchronous_worker_goes_through_all_examples(outcome):
    sharding.every_worker_sees_all(outcome)


@pytest.mark.claim("training/new-order")
@pytest.mark.cases(flags=("audit-input",), synchronous=True)
@scenario(fault_free.audited)
def test_each_epoch_has_its_own_order(outcome):
    sharding.each_pass_has_its_own_order(outcome)


@pytest.mark.claim("training/own-data")
@pytest.mark.cases(flags=("audit-input",), synchronous=False)
@scenario(fault_free.audited_apart)
def test_asynchronous_workers_train_on_different_batches(outcome):
    sharding.workers_have_their_own_batches(outcome)


@pytest.mark.claim("mwms/autoshard-data")
@pytest.mark.cases(families=("mwms",), fit=False)
@scenario(
    small_programs.pass_by_default, small_programs.pass_by_data, small_programs.pass_by_function
)
def test_partial_last_batch_has_each_example_once(outcome):
    sharding.each_example_once(outcome)


@pytest.mark.claim("mwms/autoshard-off")
@pytest.mark.cases(families=("mwms",), fit=False)
@scenario(small_programs.pass_without_shards)
def test_unsharded_workers_see_last_partial_batch(outcome):
    sharding.every_worker_sees_all(outcome)


@pytest.mark.claim("estimator/input-context")
@pytest.mark.cases(families=("estimator",))
@scenario(fault_free.audited_as_documented)
def test_each_worker_reads_its_own_shard(outcome):
    sharding.own_share_in_every_pass(outcome)


@pytest.mark.claim("estimator/seeds")
@pytest.mark.cases(families=("estimator",))
@scenario(fault_free.audited_off)
def test_with_a_seed_for_each_worker_training_converges_too(outcome):
    sharding.workers_shuffle_differently(outcome)
    convergence.step_losses_fall(outcome)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
@scenario(small_programs.enough_files)
def test_each_file_is_read_by_one_worker(outcome):
    program_results.files_sharded(outcome)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
@scenario(small_programs.too_few_files)
def test_too_few_files_are_refused(outcome):
    program_results.too_few_files_refused(outcome)
