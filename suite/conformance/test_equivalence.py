"""Equivalence: N replicas make the steps that one process makes with N times the batch.

Where a step aggregates gradients of whichever workers there is no such process: there it is their
mean that must be applied.
"""

import pytest

from suite.harness import checks, probes, scenarios


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
def test_replicas_equal_one_process_on_the_large_batch(scenario):
    pair = scenario(scenarios.large_batch)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim(
    "mwms/equals-large-batch",
    "mirrored/equals-large-batch",
    "custom-mirrored/exactly-once",
    "dtensor/equals-single",
)
@pytest.mark.cases(several=True, synchronous=True, flags=("dump-weights", "optimizer"))
@pytest.mark.parametrize("scenes", [scenarios.one_replica, scenarios.four_replicas])
def test_any_number_of_replicas_equals_one_process(scenes, scenario):
    pair = scenario(scenes)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim("mwms/xla")
@pytest.mark.cases(flags=("jit",))
@pytest.mark.parametrize("scenes", [scenarios.compiled_gradients, scenarios.compiled_step_of_one])
def test_what_xla_compiles_makes_the_same_steps(scenes, scenario):
    pair = scenario(scenes)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim("mwms/xla")
@pytest.mark.cases(flags=("jit",))
def test_xla_compiles_the_step_of_several_replicas(scenario):
    pair = scenario(scenarios.compiled_step)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim("mirrored/equals-large-batch")
@pytest.mark.cases(families=("mirrored",), fit=True)
def test_replicas_equal_one_process_in_mixed_precision(scenario):
    pair = scenario(scenarios.mixed_precision)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim("dtensor/model-parallel")
@pytest.mark.cases(families=("dtensor",))
def test_weights_in_shards_make_the_same_steps(scenario, remeshed):
    pair = scenario(scenarios.large_batch)
    checks.equals_large_batch(remeshed.sharded, pair.reference)


@pytest.mark.claim("dtensor/keras-optimizer")
@pytest.mark.cases(families=("dtensor",))
def test_the_optimizer_of_keras_makes_the_same_steps(scenario, launch):
    pair = scenario(scenarios.large_batch)
    run = probes.keras_dtensor_optimizer(launch, pair)
    checks.equals_large_batch(run, pair.reference)


@pytest.mark.claim("dtensor/keras-optimizer")
@pytest.mark.cases(families=("dtensor",))
def test_the_optimizer_of_keras_is_right_with_all_reduces_apart(scenario, launch):
    pair = scenario(scenarios.large_batch)
    run = probes.keras_dtensor_optimizer(launch, pair, probes.APART)
    checks.equals_large_batch(run, pair.reference)


@pytest.mark.claim("dtensor/multi-client", "dtensor/equals-single")
@pytest.mark.cases(families=("dtensor",))
def test_clients_of_one_mesh_make_the_same_steps(scenario, clients):
    pair = scenario(scenarios.large_batch)
    checks.equals_large_batch(clients, pair.reference)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(families=("ps1",), aggregates=True)
def test_fresh_gradients_are_averaged_and_stale_ones_dropped(scenario):
    checks.fresh_gradients_are_averaged(scenario(probes.aggregates))
