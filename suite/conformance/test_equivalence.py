"""Equivalence: N replicas make the steps that one process makes with N times the batch.

Where a step aggregates gradients of whichever workers there is no such process: there it is their
mean that must be applied.
"""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim(
    "mwms/equals-large-batch",
    "mirrored/equals-large-batch",
    "custom-mirrored/exactly-once",
    "dtensor/equals-single",
    "mwms/communication",
    "estimator/communication",
)
@pytest.mark.cases(
    several=True, synchronous=True, flags=("dump-weights", "optimizer"), backends="each"
)
@plays(fault_free.large_batch)
def test_replicas_equal_one_process_on_the_large_batch(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim(
    "mwms/equals-large-batch",
    "mirrored/equals-large-batch",
    "custom-mirrored/exactly-once",
    "dtensor/equals-single",
)
@pytest.mark.cases(several=True, synchronous=True, flags=("dump-weights", "optimizer"))
@plays(fault_free.one_replica, fault_free.four_replicas)
def test_any_number_of_replicas_equals_one_process(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("mwms/xla")
@pytest.mark.cases(flags=("jit",), flavours="first")
@plays(fault_free.compiled_gradients, fault_free.compiled_step_of_one)
def test_what_xla_compiles_makes_the_same_steps(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("mwms/xla")
@pytest.mark.cases(flags=("jit",), flavours="first")
@plays(fault_free.compiled_step)
def test_xla_compiles_the_step_of_several_replicas(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("mirrored/equals-large-batch")
@pytest.mark.cases(families=("mirrored",), fit=True)
@plays(fault_free.mixed_precision)
def test_replicas_equal_one_process_in_mixed_precision(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("dtensor/model-parallel")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.remeshed)
def test_weights_in_shards_make_the_same_steps(played):
    checks.equals_large_batch(played.sharded, played.reference)


@pytest.mark.claim("dtensor/keras-optimizer")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.keras_dtensor_optimizer)
def test_the_optimizer_of_keras_makes_the_same_steps(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("dtensor/keras-optimizer")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.keras_dtensor_optimizer_apart)
def test_the_optimizer_of_keras_is_right_with_all_reduces_apart(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("dtensor/multi-client", "dtensor/equals-single")
@pytest.mark.cases(families=("dtensor",))
@plays(fault_free.clients)
def test_clients_of_one_mesh_make_the_same_steps(played):
    checks.equals_large_batch(played.run, played.reference)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(families=("ps1",), aggregates=True)
@plays(small_programs.aggregates)
def test_fresh_gradients_are_averaged_and_stale_ones_dropped(played):
    checks.fresh_gradients_are_averaged(played)
