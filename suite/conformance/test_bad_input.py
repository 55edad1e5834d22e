"""Bad input: a trainer rejects invalid input in one line and overwrites nothing."""

import pytest

from suite.harness.checks import rejection
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import misconfiguration


@pytest.mark.claim("cluster/tf-config")
@pytest.mark.cases(families=("mwms", "estimator", "ps2"))
@scenario(misconfiguration.wrong_tf_configs)
def test_invalid_tf_config_is_rejected(outcome):
    for run in outcome:
        rejection.refused_in_one_line(run)


@pytest.mark.claim("checkpoint/refused")
@pytest.mark.cases(flags=("model",), events=("restored",), synchronous=True)
@scenario(
    misconfiguration.another_model,
    misconfiguration.cut_short,
    misconfiguration.backup_cut_short,
)
def test_a_checkpoint_that_cannot_be_restored_is_refused(outcome):
    rejection.refused_in_one_line(outcome.run)
    rejection.nothing_overwritten(outcome)
