"""Communication: each backend can be asked for, and what TensorFlow chose can be seen.

That each of them trains, and in the same steps, is in test_equivalence.py.
"""

import pytest

from suite.harness import checks, scenarios


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(flags=("backend",), backends="each")
def test_what_was_chosen_is_observable(scenario):
    run = scenario(scenarios.large_batch).run
    checks.backend_as_requested(run)
    checks.collective_is_known(run)
