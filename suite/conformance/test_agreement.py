"""Agreement: synchronous replicas report the same and hold the same."""

import pytest

from suite.harness import checks


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(distributed=True, synchronous=True, events=("epoch",))
def test_workers_agree_on_metrics(healthy):
    checks.workers_agree_on_metrics(healthy)


@pytest.mark.claim("mwms/replicas-agree")
@pytest.mark.cases(distributed=True, synchronous=True, events=("weights",))
def test_workers_agree_on_weights(healthy):
    checks.workers_agree_on_weights(healthy)


@pytest.mark.claim("mirrored/replicas")
@pytest.mark.cases(flags=("devices",), events=("weights",))
def test_there_is_a_replica_on_each_device(healthy):
    checks.replica_on_each_device(healthy)
    checks.copies_are_in_step(healthy)
