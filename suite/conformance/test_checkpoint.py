"""Checkpoints: who saves where, what remains, and what it gives back."""

import pytest

from suite.harness import checks, probes, scenarios


@pytest.mark.claim("mwms/save-needs-all")
@pytest.mark.cases(distributed=True, synchronous=True, events=("checkpoint_saved",))
def test_no_two_workers_write_one_path(healthy):
    checks.save_paths_distinct(healthy)


@pytest.mark.claim("mwms/save-needs-all")
@pytest.mark.cases(distributed=True, synchronous=True, events=("checkpoint_saved",))
def test_only_what_the_chief_saved_remains(healthy):
    checks.only_chief_keeps(healthy)


@pytest.mark.claim("mwms/checkpoint-manager")
@pytest.mark.cases(events=("checkpoint_saved", "epoch"), families=("mwms", "single"))
def test_one_checkpoint_is_kept(scenario):
    pair = scenario(scenarios.continued)
    checks.checkpoint_kept_is_one(pair.run, pair.then)


@pytest.mark.claim("mwms/checkpoint-manager", "estimator/resumes")
@pytest.mark.cases(events=("checkpoint_saved", "epoch"))
def test_the_latest_checkpoint_restores_and_training_goes_on(scenario):
    pair = scenario(scenarios.continued)
    checks.checkpoint_restores(pair.run, pair.then)
    checks.training_goes_on(pair.run, pair.then)


@pytest.mark.claim("estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
def test_the_first_and_the_last_step_are_saved(healthy):
    checks.saves_first_and_last(healthy)


@pytest.mark.claim("mwms/model-checkpoint-no-resume")
@pytest.mark.cases(families=("mwms",), fit=True)
def test_model_checkpoint_alone_does_not_resume(scenario):
    pair = scenario(probes.model_checkpoint)
    checks.model_checkpoint_does_not_resume(pair.run, pair.then)


@pytest.mark.claim("mwms/backup-dir-exclusive")
@pytest.mark.cases(families=("mwms",), fit=True)
def test_a_shared_backup_directory_collides(scenario):
    pair = scenario(probes.shared_backup)
    checks.shared_backup_collides(pair.run, pair.then)


@pytest.mark.claim("mwms/backup-dir-exclusive")
@pytest.mark.cases(families=("mwms",), fit=True)
def test_a_backup_directory_of_its_own_resumes(scenario):
    pair = scenario(probes.separate_backup)
    checks.separate_backup_resumes(pair.run, pair.then)


@pytest.mark.claim("ps1/supervisor-saves")
@pytest.mark.cases(families=("ps1",))
def test_the_supervisor_saves_while_it_trains(healthy):
    checks.supervisor_saves(healthy)


@pytest.mark.claim("ps1/supervisor-saves")
@pytest.mark.cases(families=("ps1",))
def test_the_supervisor_writes_summaries(healthy):
    checks.supervisor_writes_summaries(healthy)
