"""Accounting: steps, epochs and examples add up to the requested numbers."""

import pytest

from suite.harness.checks import accounting, coordinator, parameter_servers, supervisor
from suite.harness.checks.assertions import reported
from suite.harness.core.errors import NotExamined
from suite.harness.metrics import growth, step_counts
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free


@pytest.mark.cases(of_user=True, level="black box")
def test_every_task_exits_with_success(healthy):
    accounting.every_task_exits_with_success(healthy)


@pytest.mark.claim("training/no-process-left")
@pytest.mark.cases(level="black box")
def test_no_process_outlives_its_task(healthy):
    accounting.no_process_left_running(healthy)


@pytest.mark.claim("training/runs-to-the-end")
@pytest.mark.cases(controls=("epochs", "steps-per-epoch"))
def test_run_finishes_requested_steps(healthy):
    accounting.finishes_requested_steps(healthy)


@pytest.mark.claim("training/runs-to-the-end")
@pytest.mark.cases(events=("step",), level="observed")
def test_every_step_is_accounted_for(healthy):
    accounting.steps_accounted(healthy)


@pytest.mark.claim("training/runs-to-the-end")
@pytest.mark.cases(events=("step", "epoch"), level="observed")
def test_every_epoch_has_its_steps(healthy):
    accounting.epochs_accounted(healthy)


@pytest.mark.claim("training/few-traces")
@pytest.mark.cases(level="observed")
def test_step_is_not_retraced(healthy, record):
    for metric, value, unit, better in step_counts.measurements(healthy):
        record(metric, value, unit, better)
    if not healthy.of("traced"):
        raise NotExamined("no graph of its steps was seen: they run eagerly, or it has over 2 GB")
    accounting.is_seldom_retraced(healthy)


@pytest.mark.claim("training/nothing-grows")
@pytest.mark.cases(level="observed")
def test_nothing_grows(healthy):
    short = healthy.trainer.of_user and not any(growth.growths(healthy))
    if short or not healthy.of("resources"):
        raise NotExamined("it ended before two looks at its resources, after steps 5, 10, 20, ...")
    accounting.nothing_grows(healthy)


@pytest.mark.claim("training/nothing-grows")
@pytest.mark.cases
@scenario(fault_free.many_epochs)
@pytest.mark.long
def test_nothing_grows_in_many_epochs(outcome):
    accounting.nothing_grows(outcome)


@pytest.mark.claim("mwms/global-batch", "mirrored/replicas", "training/runs-to-the-end")
@pytest.mark.cases(events=("step",), controls=("batch-size",))
def test_each_worker_processes_its_own_batch(healthy):
    reported(healthy, "step", "examples")
    accounting.examples_accounted(healthy)


@pytest.mark.claim("ps1/stops", "training/runs-to-the-end")
@pytest.mark.cases(
    distributed=True,
    synchronous=False,
    events=("step",),
    controls=("epochs", "steps-per-epoch"),
)
def test_every_worker_stops_at_the_limit(healthy):
    supervisor.stops_at_the_limit(healthy)


@pytest.mark.claim("ps1/stops", "ps2/servers-serve")
@pytest.mark.cases(families=("ps1", "ps2"), level="black box")
def test_servers_serve_until_they_are_ended(healthy):
    parameter_servers.servers_serve_until_ended(healthy)


@pytest.mark.claim("ps1/asynchronous", "ps2/at-least-once")
@pytest.mark.cases(
    distributed=True, synchronous=False, aggregates=False, events=("step",), level="observed"
)
def test_the_global_step_counts_all_workers(healthy):
    supervisor.global_step_counts_all(healthy)


@pytest.mark.claim("ps1/asynchronous", "training/runs-to-the-end")
@pytest.mark.cases(
    distributed=True, synchronous=False, aggregates=False, events=("step",), level="observed"
)
def test_all_workers_contribute(healthy):
    parameter_servers.all_workers_contribute(healthy)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(aggregates=True, level="observed")
def test_every_aggregate_has_its_gradients(healthy):
    supervisor.aggregates_accounted(healthy)


@pytest.mark.claim("ps2/at-least-once")
@pytest.mark.cases(events=("scheduled",), level="observed")
def test_coordinator_gets_back_what_it_scheduled(healthy):
    coordinator.executed_as_scheduled(healthy)
