"""Communication: each backend can be asked for, and what TensorFlow chose can be seen.

That each of them trains, and in the same steps, is in test_equivalence.py.
"""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(flags=("backend",), backends="each")
@plays(fault_free.large_batch)
def test_what_was_chosen_is_observable(played):
    run = played.run
    checks.backend_as_requested(run)
    checks.collective_is_known(run)


@pytest.mark.claim("mwms/communication-options")
@pytest.mark.cases(families=("mwms",), fit=False, flavours="first")
@plays(small_programs.packed_by_the_call)
def test_bytes_per_pack_of_a_call_are_heeded(played):
    checks.collective_results_are_right(played)
    checks.tensors_are_packed(played)


@pytest.mark.claim("mwms/communication-options")
@pytest.mark.cases(families=("mwms",), fit=False, flavours="first")
@plays(small_programs.packed_by_the_strategy)
def test_bytes_per_pack_of_the_strategy_are_heeded(played):
    checks.collective_results_are_right(played)
    checks.tensors_are_packed(played)
