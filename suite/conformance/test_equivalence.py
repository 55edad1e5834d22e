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
