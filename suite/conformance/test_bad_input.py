"""Bad input: a trainer that is called wrongly says so in one line, and nothing is lost."""

import pytest

from suite.harness import checks, mistakes, scenarios


@pytest.mark.claim("cluster/tf-config")
@pytest.mark.cases(families=("mwms", "estimator", "ps2"))
def test_a_tf_config_that_makes_no_sense_is_refused(launch):
    for run in mistakes.wrong_tf_configs(launch):
        checks.refused_in_one_line(run)


@pytest.mark.cases(flags=("model",), events=("restored",), synchronous=True)
@pytest.mark.parametrize("mistake", [mistakes.another_model, mistakes.cut_short])
def test_a_checkpoint_that_cannot_be_restored_is_refused(scenario, launch, mistake):
    found = mistake(launch, scenario(scenarios.continued).then)
    checks.refused_in_one_line(found.run)
    checks.nothing_overwritten(found)
