"""Sharding: which worker sees which example, file or everything."""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("mwms/autoshard-data", "estimator/input-context")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
def test_each_example_is_seen_once_in_a_pass(scenario):
    checks.each_example_once(scenario(scenarios.audited))


@pytest.mark.claim("single/converges", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("audit-input",), distributed=False)
def test_one_process_sees_each_example_once(scenario):
    checks.each_example_once(scenario(scenarios.audited))


@pytest.mark.claim("mwms/autoshard-off", "estimator/seeds")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
def test_without_sharding_every_worker_sees_all(scenario):
    checks.every_worker_sees_all(scenario(scenarios.audited_off))


@pytest.mark.claim("estimator/input-context")
@pytest.mark.cases(families=("estimator",))
def test_each_worker_has_a_share_of_its_own(scenario):
    checks.own_share_in_every_pass(scenario(scenarios.audited))


@pytest.mark.claim("estimator/seeds")
@pytest.mark.cases(families=("estimator",))
def test_with_a_seed_for_each_worker_training_converges_too(scenario):
    run = scenario(scenarios.audited_off)
    checks.workers_shuffle_differently(run)
    checks.step_losses_fall(run)


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
def test_each_file_is_read_by_one_worker(scenario):
    checks.files_sharded(scenario(probes.enough_files))


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
def test_too_few_files_are_refused(scenario):
    checks.too_few_files_refused(scenario(probes.too_few_files))
