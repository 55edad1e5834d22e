"""Communication: each backend can be requested, and TensorFlow's choice is observable.

test_equivalence.py checks that each backend trains, with the same steps.
"""

import pytest

from suite.harness.checks import communication
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(flags=("backend",), backends="each")
@scenario(fault_free.large_batch)
def test_actual_backend_is_observable(outcome):
    run = outcome.run
    communication.backend_as_requested(run)
    communication.collective_is_known(run)


@pytest.mark.claim("mwms/communication-options")
@pytest.mark.cases(families=("mwms",), fit=False, flavors="first")
@scenario(small_programs.packed_by_the_call)
def test_bytes_per_pack_of_call_is_applied(outcome):
    communication.collective_results_are_right(outcome)
    communication.tensors_are_packed(outcome)


@pytest.mark.claim("mwms/communication-options")
@pytest.mark.cases(families=("mwms",), fit=False, flavors="first")
@scenario(small_programs.packed_by_the_strategy)
def test_bytes_per_pack_of_strategy_is_applied(outcome):
    communication.collective_results_are_right(outcome)
    communication.tensors_are_packed(outcome)


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(families=("mwms", "estimator"), level="observed")
def test_requested_backend_reaches_the_strategy(healthy):
    communication.backend_as_requested(healthy)
    communication.collective_is_known(healthy)


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(
    of_user=True, families=("mwms", "estimator"), controls=("backend",), backends="each"
)
def test_each_backend_reaches_the_strategy(healthy):
    communication.backend_as_requested(healthy)
    communication.collective_is_known(healthy)
