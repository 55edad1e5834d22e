"""Start-up: who is in the cluster, who is chief, and that training waits for everybody."""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("cluster/tf-config")
@pytest.mark.cases(distributed=True)
def test_every_task_reads_its_cluster_and_role(healthy):
    checks.cluster_as_given(healthy)


@pytest.mark.claim("cluster/chief")
@pytest.mark.cases(distributed=True)
def test_one_task_is_chief(healthy):
    checks.one_chief(healthy)


@pytest.mark.claim("cluster/chief", "cluster/tf-config")
@pytest.mark.cases(families=("mwms",))
def test_a_chief_job_is_chief(scenario):
    run = scenario(scenarios.chief_job)
    checks.cluster_as_given(run)
    checks.one_chief(run)
    checks.workers_agree_on_weights(run)


@pytest.mark.claim("cluster/waits-for-all", "ps1/chief-initialises")
@pytest.mark.cases(distributed=True)
def test_no_step_before_the_last_task_is_up(scenario):
    checks.waits_for_all(scenario(scenarios.late_worker))


@pytest.mark.claim("cluster/server-target")
@pytest.mark.cases(distributed=True)
def test_each_task_logs_its_target(healthy):
    checks.server_target_logged(healthy)


@pytest.mark.claim("cluster/static")
@pytest.mark.cases(distributed=True)
def test_a_stranger_cannot_join(scenario):
    intruded = scenario(scenarios.intruder)
    checks.stranger_changes_nothing(intruded.run, intruded.stranger)


@pytest.mark.claim("cluster/no-tf-config")
@pytest.mark.cases(families=("mwms", "estimator"))
def test_without_tf_config_it_is_a_cluster_of_one(scenario):
    run = scenario(scenarios.alone)
    checks.finished_as_asked(run)
    checks.trains_as_a_cluster_of_one(run)


@pytest.mark.claim("cluster/local-server")
@pytest.mark.cases(families=("ps1",))
def test_a_local_server_answers_another_process(scenario):
    checks.local_server_answers(scenario(probes.local_server))


@pytest.mark.claim("estimator/eager-fails")
@pytest.mark.cases(families=("estimator",))
def test_eager_execution_has_to_be_disabled(scenario):
    checks.eager_execution_is_refused(scenario(probes.eager_estimator))


@pytest.mark.claim("estimator/removed")
@pytest.mark.cases(families=("estimator",))
def test_there_is_no_estimator_where_it_was_removed(scenario, session):
    removed = session.claims["estimator/removed"]
    gone = removed.made_for(session.interpreter.tensorflow, "none")
    checks.there_or_gone(scenario(probes.estimator_api), gone)
