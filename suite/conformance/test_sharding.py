"""Sharding: which worker sees which example, file or everything."""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("mwms/autoshard-data")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
def test_each_example_is_seen_once_in_a_pass(scenario):
    checks.each_example_once(scenario(scenarios.audited))


@pytest.mark.claim("single/converges", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("audit-input",), distributed=False)
def test_one_process_sees_each_example_once(scenario):
    checks.each_example_once(scenario(scenarios.audited))


@pytest.mark.claim("mwms/autoshard-off")
@pytest.mark.cases(flags=("audit-input", "autoshard"))
def test_without_sharding_every_worker_sees_all(scenario):
    checks.every_worker_sees_all(scenario(scenarios.audited_off))


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
def test_each_file_is_read_by_one_worker(scenario):
    checks.files_sharded(scenario(probes.enough_files))


@pytest.mark.claim("mwms/autoshard-file")
@pytest.mark.cases(families=("mwms",))
def test_too_few_files_are_refused(scenario):
    checks.too_few_files_refused(scenario(probes.too_few_files))
