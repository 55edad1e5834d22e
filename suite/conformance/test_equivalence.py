"""Equivalence: N workers make the steps that one process makes with N times the batch."""

import pytest

from suite.harness import checks, scenarios


@pytest.mark.claim("mwms/equals-large-batch")
@pytest.mark.cases(
    distributed=True, synchronous=True, flags=("dump-weights", "optimizer"), backends="each"
)
def test_workers_equal_one_process_on_the_large_batch(scenario):
    pair = scenario(scenarios.large_batch)
    checks.equals_large_batch(pair.run, pair.reference)
