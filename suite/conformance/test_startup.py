"""Start-up: who is in the cluster, who is chief, and that training waits for everybody."""

import pytest

from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("cluster/tf-config")
@pytest.mark.cases(distributed=True)
def test_every_task_reads_its_cluster_and_role(healthy):
    checks.cluster_as_given(healthy)


@pytest.mark.claim("cluster/chief")
@pytest.mark.cases(distributed=True)
def test_one_task_is_chief(healthy):
    checks.one_chief(healthy)


@pytest.mark.claim("cluster/chief", "cluster/tf-config")
@pytest.mark.cases(families=("mwms",), flavours="first")
@plays(fault_free.chief_job)
def test_a_chief_job_is_chief(played):
    checks.cluster_as_given(played)
    checks.one_chief(played)
    checks.workers_agree_on_weights(played)


@pytest.mark.claim("cluster/waits-for-all", "ps1/chief-initialises")
@pytest.mark.cases(distributed=True, flavours="first")
@plays(fault_free.late_worker)
def test_no_step_before_the_last_task_is_up(played):
    checks.waits_for_all(played)


@pytest.mark.claim("cluster/server-target")
@pytest.mark.cases(distributed=True)
def test_each_task_logs_its_target(healthy):
    checks.server_target_logged(healthy)


@pytest.mark.claim("cluster/static")
@pytest.mark.cases(distributed=True, flavours="first")
@plays(fault_free.intruder)
def test_a_stranger_cannot_join(played):
    checks.stranger_changes_nothing(played.run, played.stranger)


@pytest.mark.claim("cluster/no-tf-config")
@pytest.mark.cases(families=("mwms", "estimator"), flavours="first")
@plays(fault_free.alone)
def test_without_tf_config_it_is_a_cluster_of_one(played):
    checks.finished_as_asked(played)
    checks.trains_as_a_cluster_of_one(played)


@pytest.mark.claim("cluster/local-server")
@pytest.mark.cases(families=("ps1",))
@plays(small_programs.local_server)
def test_a_local_server_answers_another_process(played):
    checks.local_server_answers(played)


@pytest.mark.claim("estimator/eager-fails")
@pytest.mark.cases(families=("estimator",))
@plays(small_programs.eager_estimator)
def test_eager_execution_has_to_be_disabled(played):
    checks.eager_execution_is_refused(played)


@pytest.mark.claim("estimator/removed")
@pytest.mark.cases(families=("estimator",))
@plays(small_programs.estimator_api)
def test_there_is_no_estimator_where_it_was_removed(played, session):
    removed = session.claims["estimator/removed"]
    gone = removed.made_for(session.interpreter.tensorflow, "none")
    checks.there_or_gone(played, gone)
