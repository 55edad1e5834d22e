"""Placement: devices of variables and ops, and the effect of the strategy's scope."""

import pytest

from suite.harness.checks import (
    checkpoints,
    dtensor_layouts,
    parameter_servers,
    program_results,
    supervisor,
)
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("ps1/round-robin", "ps2/round-robin")
@pytest.mark.cases(events=("placed",))
def test_variables_are_on_the_servers_in_turn(healthy):
    parameter_servers.variables_round_robin(healthy)


@pytest.mark.claim("cluster/devices", "ps1/round-robin")
@pytest.mark.cases(families=("ps1",), events=("placed",))
def test_ops_run_where_they_are_pinned(healthy):
    parameter_servers.ops_on_own_worker(healthy)


@pytest.mark.claim("ps2/sharded-variables")
@pytest.mark.cases(families=("ps2",), flags=("shard-bytes",))
@scenario(fault_free.resharded)
def test_a_sharded_variable_restores_into_other_servers(outcome):
    parameter_servers.shards_on_every_server(outcome.run)
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    parameter_servers.shards_on_every_server(outcome.then)


@pytest.mark.claim("ps1/chief-initialises")
@pytest.mark.cases(families=("ps1",), events=("step",), level="observed")
@scenario(fault_free.late_chief)
def test_workers_wait_for_chief_initialization(outcome):
    supervisor.workers_wait_for_chief(outcome)


@pytest.mark.claim("mwms/scope")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.built_outside_scope)
def test_model_built_outside_scope_is_not_synchronized(outcome):
    program_results.outside_scope_is_not_synchronized(outcome)


@pytest.mark.claim("mwms/scope")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.all_outside_scope)
def test_model_outside_scope_is_not_synchronized(outcome):
    program_results.outside_scope_is_not_synchronized(outcome)


@pytest.mark.claim("mwms/scope")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.inside_scope)
def test_model_built_inside_scope_is_synchronized(outcome):
    program_results.inside_scope_is_synchronized(outcome)


@pytest.mark.claim("dtensor/replicated")
@pytest.mark.cases(events=("laid_out",))
def test_weights_are_replicated_and_the_batch_is_sharded(healthy):
    dtensor_layouts.weights_replicated(healthy)
    dtensor_layouts.batch_sharded(healthy)


@pytest.mark.claim("dtensor/replicated")
@pytest.mark.cases(events=("laid_out",))
def test_gradients_are_reduced(healthy):
    dtensor_layouts.gradients_reduced(healthy)


@pytest.mark.claim("dtensor/divisible")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.remeshed)
def test_a_batch_that_the_mesh_does_not_divide_is_refused(outcome):
    dtensor_layouts.indivisible_batch_refused(outcome.sharded)


@pytest.mark.claim("dtensor/read-after-assign")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.read_after_assign)
def test_step_reads_assigned_value(outcome):
    dtensor_layouts.assigned_is_read(outcome)


@pytest.mark.claim("dtensor/read-after-assign")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.read_after_assign_apart)
def test_step_reads_assigned_value_uncombined_all_reduces(outcome):
    dtensor_layouts.assigned_is_read(outcome)
