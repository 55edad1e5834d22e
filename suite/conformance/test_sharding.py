"""Sharding: which worker sees which example, file or everything."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/autoshard-data", "estimator/input-context")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
@plays(fault_free.audited)
def test_each_example_is_seen_once_in_a_pass(played):
    checks.each_example_once(played)


@pytest.mark.claim("single/converges", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("audit-input",), distributed=False)
@plays(fault_free.audited)
def test_one_process_sees_each_example_once(played):
    checks.each_example_once(played)


@pytest.mark.claim("mwms/autoshard-off", "estimator/seeds")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
@plays(fault_free.audited_off)
def test_without_sharding_every_worker_sees_all(played):
    checks.every_worker_sees_all(played)


@pytest.mark.claim("ps1/asynchronous")
@pytest.mark.cases(flags=("audit-input",), synchronous=False)
@plays(fault_free.audited_apart)
def test_each_asynchronous_worker_goes_through_all_examples(played):
    checks.every_worker_sees_all(played)


@pytest.mark.claim("mwms/autoshard-data")
@pytest.mark.cases(families=("mwms",), fit=False)
@plays(small_programs.pass_by_default, small_programs.pass_by_data, small_programs.pass_by_function)
def test_a_pass_that_ends_with_a_partial_batch_has_each_example_once(played):
    checks.each_example_once(played)


@pytest.mark.claim("mwms/autoshard-off")
@pytest.mark.cases(families=("mwms",), fit=False)
@plays(small_programs.pass_without_shards)
def test_without_sharding_every_worker_sees_the_last_partial_batch_too(played):
    checks.every_worker_sees_all(played)


@pytest.mark.claim("estimator/input-context")
@pytest.mark.cases(families=("estimator",))
@plays(fault_free.audited)
def test_each_worker_has_a_share_of_its_own(played):
    checks.own_share_in_every_pass(played)


@pytest.mark.claim("estimator/seeds")
@pytest.mark.cases(families=("estimator",))
@plays(fault_free.audited_off)
def test_with_a_seed_for_each_worker_training_converges_too(played):
    checks.workers_shuffle_differently(played)
    checks.step_losses_fall(played)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
@plays(small_programs.enough_files)
def test_each_file_is_read_by_one_worker(played):
    checks.files_sharded(played)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
@plays(small_programs.too_few_files)
def test_too_few_files_are_refused(played):
    checks.too_few_files_refused(played)
