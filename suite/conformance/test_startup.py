"""Startup: members of the cluster, its chief, and training that waits for all tasks."""

import pytest

from suite.harness.checks import accounting, agreement, program_results, startup
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.cases(of_user=True, level="observed")
def test_program_makes_the_strategy_of_its_approach(healthy):
    startup.strategy_as_recognized(healthy)


@pytest.mark.claim("cluster/tf-config", "ps1/cluster-spec")
@pytest.mark.cases(distributed=True, level="observed")
def test_every_task_reads_its_cluster_and_role(healthy):
    startup.cluster_as_given(healthy)


@pytest.mark.claim("cluster/chief")
@pytest.mark.cases(distributed=True, level="observed")
def test_one_task_is_chief(healthy):
    startup.one_chief(healthy)


@pytest.mark.claim("cluster/chief", "cluster/tf-config")
@pytest.mark.cases(families=("mwms",), flavors="first", level="observed")
@scenario(fault_free.chief_job)
def test_a_chief_job_is_chief(outcome):
    startup.cluster_as_given(outcome)
    startup.one_chief(outcome)
    agreement.workers_agree_on_weights(outcome)


@pytest.mark.claim("cluster/waits-for-all", "ps1/chief-initialises")
@pytest.mark.cases(distributed=True, flavors="first", level="observed")
@scenario(fault_free.late_worker)
def test_no_step_before_the_last_task_is_up(outcome):
    startup.waits_for_all(outcome)


@pytest.mark.claim("cluster/server-target", "ps1/cluster-spec")
@pytest.mark.cases(distributed=True, level="observed")
def test_each_task_logs_its_target(healthy):
    startup.server_target_logged(healthy)


@pytest.mark.claim("cluster/static")
@pytest.mark.cases(distributed=True, flavors="first", controls=("length",))
@scenario(fault_free.unexpected_task)
def test_unexpected_worker_cannot_join(outcome):
    startup.unexpected_task_changes_nothing(outcome.run, outcome.unexpected)


@pytest.mark.claim("cluster/no-tf-config")
@pytest.mark.cases(
    families=("mwms", "estimator"), flavors="first", controls=("epochs", "steps-per-epoch")
)
@scenario(fault_free.alone)
def test_without_tf_config_it_is_a_cluster_of_one(outcome):
    accounting.finishes_requested_steps(outcome)
    startup.trains_as_a_cluster_of_one(outcome)


@pytest.mark.claim("cluster/local-server")
@pytest.mark.cases(families=("ps1",))
@scenario(small_programs.local_server)
def test_a_local_server_answers_another_process(outcome):
    program_results.local_server_answers(outcome)


@pytest.mark.claim("ps1/long-session")
@pytest.mark.cases(families=("ps1",), aggregates=False)
@pytest.mark.long
@scenario(small_programs.many_runs)
def test_a_session_makes_many_runs(outcome):
    program_results.session_keeps_running(outcome)


@pytest.mark.claim("mwms/signal-handlers")
@pytest.mark.cases(families=("mwms",), fit=False, flavors="first")
@scenario(small_programs.sigterm_handler)
def test_strategy_keeps_the_sigterm_handler(outcome):
    program_results.program_keeps_its_signal_handler(outcome)


@pytest.mark.claim("estimator/eager-fails")
@pytest.mark.cases(families=("estimator",))
@scenario(small_programs.eager_estimator)
def test_eager_execution_has_to_be_disabled(outcome):
    program_results.eager_execution_is_refused(outcome)


@pytest.mark.claim("estimator/removed")
@pytest.mark.cases(families=("estimator",))
@scenario(small_programs.estimator_api)
def test_estimator_absent_where_removed(outcome, session):
    removed = session.claims["estimator/removed"]
    gone = removed.made_for(session.interpreter.tensorflow, "none")
    program_results.api_present_or_removed(outcome, gone)
