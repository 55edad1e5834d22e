"""Communication: each backend can be asked for, and what TensorFlow chose can be seen.

That each of them trains, and in the same steps, is in test_equivalence.py.
"""

import pytest

from suite.harness import checks, scenarios
from suite.harness.cases import plays


@pytest.mark.claim("mwms/communication", "estimator/communication")
@pytest.mark.cases(flags=("backend",), backends="each")
@plays(scenarios.large_batch)
def test_what_was_chosen_is_observable(played):
    run = played.run
    checks.backend_as_requested(run)
    checks.collective_is_known(run)
