"""Runs that several properties read and that begin where another one began."""

import pytest

from suite.harness import probes, scenarios


@pytest.fixture
def remeshed(scenario):
    """The runs of `probes.remeshed`, from the same start as those of `large_batch`."""
    pair = scenario(scenarios.large_batch)

    def remeshed(launch):
        return probes.remeshed(launch, pair)

    return scenario(remeshed)


@pytest.fixture
def clients(scenario):
    """The run of `scenarios.clients`, from the same start as those of `large_batch`."""
    pair = scenario(scenarios.large_batch)

    def clients(launch):
        return scenarios.clients(launch, pair)

    return scenario(clients)
