"""Equivalence: N workers make the steps that one process makes with N times the batch.

Where a step aggregates gradients of whichever workers there is no such process: there it is their
mean that must be applied.
"""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("mwms/equals-large-batch")
@pytest.mark.cases(
    distributed=True, synchronous=True, flags=("dump-weights", "optimizer"), backends="each"
)
def test_workers_equal_one_process_on_the_large_batch(scenario):
    pair = scenario(scenarios.large_batch)
    checks.equals_large_batch(pair.run, pair.reference)


@pytest.mark.claim("ps1/synchronous")
@pytest.mark.cases(families=("ps1",), aggregates=True)
def test_fresh_gradients_are_averaged_and_stale_ones_dropped(scenario):
    checks.fresh_gradients_are_averaged(scenario(probes.aggregates))
