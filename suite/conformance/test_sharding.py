"""Sharding: which worker sees which example, file or everything."""

import pytest

from suite.harness import checks, probes, scenarios
from suite.harness.cases import plays


@pytest.mark.claim("mwms/autoshard-data", "estimator/input-context")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
@plays(scenarios.audited)
def test_each_example_is_seen_once_in_a_pass(played):
    checks.each_example_once(played)


@pytest.mark.claim("single/converges", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("audit-input",), distributed=False)
@plays(scenarios.audited)
def test_one_process_sees_each_example_once(played):
    checks.each_example_once(played)


@pytest.mark.claim("mwms/autoshard-off", "estimator/seeds")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
@plays(scenarios.audited_off)
def test_without_sharding_every_worker_sees_all(played):
    checks.every_worker_sees_all(played)


@pytest.mark.claim("ps1/asynchronous")
@pytest.mark.cases(flags=("audit-input",), synchronous=False)
@plays(scenarios.audited_apart)
def test_each_asynchronous_worker_goes_through_all_examples(played):
    checks.every_worker_sees_all(played)


@pytest.mark.claim("mwms/autoshard-data")
@pytest.mark.cases(families=("mwms",), fit=False)
@plays(probes.pass_by_default, probes.pass_by_data, probes.pass_by_function)
def test_a_pass_that_ends_with_a_partial_batch_has_each_example_once(played):
    checks.each_example_once(played)


@pytest.mark.claim("mwms/autoshard-off")
@pytest.mark.cases(families=("mwms",), fit=False)
@plays(probes.pass_without_shards)
def test_without_sharding_every_worker_sees_the_last_partial_batch_too(played):
    checks.every_worker_sees_all(played)


@pytest.mark.claim("estimator/input-context")
@pytest.mark.cases(families=("estimator",))
@plays(scenarios.audited)
def test_each_worker_has_a_share_of_its_own(played):
    checks.own_share_in_every_pass(played)


@pytest.mark.claim("estimator/seeds")
@pytest.mark.cases(families=("estimator",))
@plays(scenarios.audited_off)
def test_with_a_seed_for_each_worker_training_converges_too(played):
    checks.workers_shuffle_differently(played)
    checks.step_losses_fall(played)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
@plays(probes.enough_files)
def test_each_file_is_read_by_one_worker(played):
    checks.files_sharded(played)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
@plays(probes.too_few_files)
def test_too_few_files_are_refused(played):
    checks.too_few_files_refused(played)
