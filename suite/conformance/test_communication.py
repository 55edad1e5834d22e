"""Communication: each backend can be asked for, and what TensorFlow chose can be seen."""

import pytest

from suite.harness import checks


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(flags=("backend",), backends="each")
def test_what_was_chosen_is_observable(healthy):
    checks.backend_as_requested(healthy)
    checks.collective_is_known(healthy)


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(flags=("backend",), backends="each")
def test_every_backend_trains(healthy):
    checks.finished_as_asked(healthy)
    checks.workers_agree_on_weights(healthy)
