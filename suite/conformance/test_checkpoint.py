"""Checkpoints: who saves where, what remains, and what it gives back."""

import pytest

from reference_trainers import TRAINERS
from suite.harness import checks
from suite.harness.pytest_plugin.parametrization import plays
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/save-needs-all")
@pytest.mark.cases(distributed=True, synchronous=True, events=("checkpoint_saved",))
def test_no_two_workers_write_one_path(healthy):
    checks.save_paths_distinct(healthy)


@pytest.mark.claim("mwms/save-needs-all")
@pytest.mark.cases(distributed=True, synchronous=True, events=("checkpoint_saved",))
def test_only_what_the_chief_saved_remains(healthy):
    checks.only_chief_keeps(healthy)


@pytest.mark.claim("mwms/checkpoint-manager", "custom-mirrored/exactly-once")
@pytest.mark.cases(
    families=("single", "mwms", "custom-mirrored", "dtensor"), events=("checkpoint_saved", "epoch")
)
@plays(fault_free.continued)
def test_one_checkpoint_is_kept(played):
    checks.checkpoint_kept_is_one(played.run, played.then)


@pytest.mark.claim(
    "mwms/checkpoint-manager",
    "mirrored/latest-restores",
    "dtensor/checkpoint",
    "estimator/resumes",
)
@pytest.mark.cases(events=("checkpoint_saved", "epoch"))
@plays(fault_free.continued)
def test_the_latest_checkpoint_restores_and_training_goes_on(played):
    checks.checkpoint_restores(played.run, played.then)
    checks.training_goes_on(played.run, played.then)


@pytest.mark.claim("checkpoint/any-strategy", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("restore",))
@plays(fault_free.moved_from_next)
def test_a_checkpoint_of_another_strategy_restores(played):
    checks.checkpoint_restores(played.run, played.then)
    checks.equals_large_batch(played.then, played.reference)


@pytest.mark.claim("checkpoint/any-strategy", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("restore",))
@plays(*(fault_free.moved_from(row) for row in TRAINERS if row.portable))
@pytest.mark.long
def test_a_checkpoint_of_every_strategy_restores(played):
    checks.checkpoint_restores(played.run, played.then)
    checks.equals_large_batch(played.then, played.reference)


@pytest.mark.claim("estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",))
def test_the_first_and_the_last_step_are_saved(healthy):
    checks.saves_first_and_last(healthy)


@pytest.mark.claim("mwms/model-checkpoint-no-resume")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.model_checkpoint)
def test_model_checkpoint_alone_does_not_resume(played):
    checks.model_checkpoint_does_not_resume(played.run, played.then)


@pytest.mark.claim("mwms/backup-dir-exclusive")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.shared_backup)
def test_a_shared_backup_directory_collides(played):
    checks.shared_backup_collides(played.run, played.then)


@pytest.mark.claim("mwms/backup-dir-exclusive")
@pytest.mark.cases(families=("mwms",), fit=True)
@plays(small_programs.separate_backup)
def test_a_backup_directory_of_its_own_resumes(played):
    checks.separate_backup_resumes(played.run, played.then)


@pytest.mark.claim("ps1/supervisor-saves")
@pytest.mark.cases(families=("ps1",))
def test_the_supervisor_saves_while_it_trains(healthy):
    checks.supervisor_saves(healthy)


@pytest.mark.claim("ps1/supervisor-saves")
@pytest.mark.cases(families=("ps1",))
def test_the_supervisor_writes_summaries(healthy):
    checks.supervisor_writes_summaries(healthy)


@pytest.mark.claim("dtensor/checkpoint", "dtensor/reload-replicated")
@pytest.mark.cases(families=("dtensor",))
@plays(small_programs.remeshed)
def test_a_checkpoint_restores_into_another_mesh(played):
    checks.checkpoint_restores(played.sharded, played.smaller)
    checks.training_goes_on(played.sharded, played.smaller)
    checks.checkpoint_restores(played.smaller, played.larger)
    checks.training_goes_on(played.smaller, played.larger)
