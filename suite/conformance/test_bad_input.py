"""Bad input: a trainer that is called wrongly says so in one line, and nothing is lost."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import misconfiguration


@pytest.mark.claim("cluster/tf-config")
@pytest.mark.cases(families=("mwms", "estimator", "ps2"))
@plays(misconfiguration.wrong_tf_configs)
def test_a_tf_config_that_makes_no_sense_is_refused(played):
    for run in played:
        checks.refused_in_one_line(run)


@pytest.mark.cases(flags=("model",), events=("restored",), synchronous=True)
@plays(misconfiguration.another_model, misconfiguration.cut_short)
def test_a_checkpoint_that_cannot_be_restored_is_refused(played):
    checks.refused_in_one_line(played.run)
    checks.nothing_overwritten(played)
