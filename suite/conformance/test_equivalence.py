"""Equivalence: N replicas make the steps that one process makes with N times the batch."""

import pytest

from suite.harness import checks, scenarios


@pytest.mark.claim(
    "mwms/equals-large-batch", "mirrored/equals-large-batch", "custom-mirrored/exactly-once"
)
@pytest.mark.cases(
    several=True, synchronous=True, flags=("dump-weights", "optimizer"), backends="each"
)
def test_replicas_equal_one_process_on_the_large_batch(scenario):
    pair = scenario(scenarios.large_batch)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim(
    "mwms/equals-large-batch", "mirrored/equals-large-batch", "custom-mirrored/exactly-once"
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
