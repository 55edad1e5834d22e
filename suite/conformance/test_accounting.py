"""Accounting: steps, epochs and examples add up to what was asked for."""

import pytest

from suite.harness import checks


@pytest.mark.cases(events=("step",))
def test_a_run_ends_as_asked(healthy):
    checks.finished_as_asked(healthy)


@pytest.mark.cases(events=("step",))
def test_every_step_is_accounted_for(healthy):
    checks.steps_accounted(healthy)


@pytest.mark.cases(events=("step", "epoch"))
def test_every_epoch_has_its_steps(healthy):
    checks.epochs_accounted(healthy)


@pytest.mark.claim("mwms/global-batch", "mirrored/replicas")
@pytest.mark.cases(events=("step",))
def test_each_worker_processes_its_own_batch(healthy):
    checks.examples_accounted(healthy)


@pytest.mark.claim("ps1/stops")
@pytest.mark.cases(distributed=True, synchronous=False, events=("step",))
def test_every_worker_stops_at_the_limit(healthy):
    checks.stops_at_the_limit(healthy)


@pytest.mark.claim("ps1/stops")
@pytest.mark.cases(families=("ps1", "ps2"))
def test_servers_serve_until_they_are_ended(healthy):
    checks.servers_serve_until_ended(healthy)


@pytest.mark.claim("ps1/asynchronous", "ps2/at-least-once")
@pytest.mark.cases(distributed=True, synchronous=False, aggregates=False, events=("step",))
def test_the_global_step_counts_all_workers(healthy):
    checks.global_step_counts_all(healthy)


@pytest.mark.claim("ps1/asynchronous")
@pytest.mark.cases(distributed=True, synchronous=False, aggregates=False, events=("step",))
def test_all_workers_contribute(healthy):
    checks.all_workers_contribute(healthy)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(aggregates=True)
def test_every_aggregate_has_its_gradients(healthy):
    checks.aggregates_accounted(healthy)
