"""Placement: which device holds what, and what the strategy's scope has to do with it."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("ps1/round-robin")
@pytest.mark.cases(events=("placed",))
def test_variables_are_on_the_servers_in_turn(healthy):
    checks.variables_round_robin(healthy)


@pytest.mark.claim("cluster/devices", "ps1/round-robin")
@pytest.mark.cases(families=("ps1",), events=("placed",))
def test_ops_run_where_they_are_pinned(healthy):
    checks.ops_on_own_worker(healthy)


@pytest.mark.claim("ps2/sharded-variables")
@pytest.mark.cases(families=("ps2",), flags=("shard-bytes",))
@plays(fault_free.resharded)
def test_a_sharded_variable_restores_into_other_servers(played):
    for run in (played.run, played.then):
        checks.shards_on_every_server(run)
    checks.checkpoint_restores(played.run, played.then)


@pytest.mark.claim("ps1/chief-initialises")
@pytest.mark.cases(families=("ps1",))
@plays(fault_free.late_chief)
def test_the_others_wait_until_the_chief_has_initialised(played):
    checks.others_wait_for_the_chief(played)


@pytest.mark.claim("mwms/scope")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.built_outside_scope)
def test_a_model_built_outside_the_scope_is_not_kept_in_step(played):
    checks.outside_scope_is_not_in_step(played)


@pytest.mark.claim("mwms/scope")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.all_outside_scope)
def test_a_model_outside_the_scope_altogether_is_not_kept_in_step(played):
    checks.outside_scope_is_not_in_step(played)


@pytest.mark.claim("mwms/scope")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.inside_scope)
def test_a_model_built_inside_the_scope_is(played):
    checks.inside_scope_is_in_step(played)


@pytest.mark.claim("dtensor/replicated")
@pytest.mark.cases(events=("laid_out",))
def test_weights_are_replicated_and_the_batch_is_sharded(healthy):
    checks.weights_replicated(healthy)
    checks.batch_sharded(healthy)


@pytest.mark.claim("dtensor/replicated")
@pytest.mark.cases(events=("laid_out",))
def test_gradients_are_reduced(healthy):
    checks.gradients_reduced(healthy)


@pytest.mark.claim("dtensor/divisible")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.remeshed)
def test_a_batch_that_the_mesh_does_not_divide_is_refused(played):
    checks.indivisible_batch_refused(played.sharded)


@pytest.mark.claim("dtensor/read-after-assign")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.read_after_assign)
def test_a_step_reads_what_it_has_assigned(played):
    checks.assigned_is_read(played)


@pytest.mark.claim("dtensor/read-after-assign")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.read_after_assign_apart)
def test_a_step_reads_what_it_has_assigned_with_all_reduces_apart(played):
    checks.assigned_is_read(played)
