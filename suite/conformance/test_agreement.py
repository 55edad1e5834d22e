"""Agreement: synchronous workers report the same and hold the same."""

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
