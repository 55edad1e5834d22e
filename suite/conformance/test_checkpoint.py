"""Checkpoints: save paths of the workers, remaining files, and restored state."""

import pytest

from reference_trainers import TRAINERS
from suite.harness.checks import checkpoints, equivalence, program_results, sharding, supervisor
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.scenarios import fault_free, small_programs


@pytest.mark.claim("mwms/save-needs-all")
@pytest.mark.cases(
    distributed=True, synchronous=True, events=("checkpoint_saved",), level="observed"
)
def test_no_two_workers_write_one_path(healthy):
    checkpoints.save_paths_distinct(healthy)


@pytest.mark.claim("mwms/save-needs-all")
@pytest.mark.cases(
    distributed=True, synchronous=True, events=("checkpoint_saved",), level="observed"
)
def test_only_chief_checkpoints_remain(healthy):
    checkpoints.only_chief_keeps(healthy)


@pytest.mark.claim("mwms/checkpoint-manager", "custom-mirrored/exactly-once", "checkpoint/latest")
@pytest.mark.cases(
    families=("single", "mwms", "custom-mirrored", "dtensor"), events=("checkpoint_saved", "epoch")
)
@scenario(fault_free.continued)
def test_one_checkpoint_is_kept(outcome):
    checkpoints.checkpoint_kept_is_one(outcome.run, outcome.then)


@pytest.mark.claim(
    "mwms/checkpoint-manager",
    "mirrored/latest-restores",
    "dtensor/checkpoint",
    "estimator/resumes",
    "checkpoint/latest",
)
@pytest.mark.cases(
    families=("single", "mwms", "mirrored", "custom-mirrored", "dtensor", "estimator", "ps2"),
    events=("checkpoint_saved",),
    controls=("epochs", "model-dir"),
)
@scenario(fault_free.continued)
def test_latest_checkpoint_restores_and_training_continues(outcome):
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    checkpoints.training_continues(outcome.run, outcome.then)


@pytest.mark.claim("checkpoint/any-strategy", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("restore",))
@scenario(fault_free.moved_from_next)
def test_a_checkpoint_of_another_strategy_restores(outcome):
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    equivalence.equals_large_batch(outcome.then, outcome.reference)


@pytest.mark.claim("checkpoint/any-strategy", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("restore",))
@scenario(*(fault_free.moved_from(row) for row in TRAINERS if row.portable))
@pytest.mark.long
def test_a_checkpoint_of_every_strategy_restores(outcome):
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    equivalence.equals_large_batch(outcome.then, outcome.reference)


@pytest.mark.claim("estimator/train-and-evaluate")
@pytest.mark.cases(families=("estimator",), controls=("epochs", "steps-per-epoch"))
def test_the_first_and_the_last_step_are_saved(healthy):
    checkpoints.saves_first_and_last(healthy)


@pytest.mark.claim("checkpoint/nothing-else")
@pytest.mark.cases(events=("checkpoint_saved",))
def test_nothing_else_is_left_on_disk(healthy):
    checkpoints.nothing_else_is_left(healthy)


@pytest.mark.claim("checkpoint/last-step")
@pytest.mark.cases(events=("checkpoint_saved",))
def test_the_last_save_is_of_the_last_step(healthy):
    checkpoints.last_save_is_of_the_end(healthy)


@pytest.mark.claim("training/makes-the-rest")
@pytest.mark.cases(events=("checkpoint_saved", "epoch"), fit=False)
@scenario(fault_free.continued)
def test_a_second_run_makes_the_epochs_that_are_left(outcome):
    checkpoints.second_run_makes_the_rest(outcome.run, outcome.then)


@pytest.mark.claim("training/new-data")
@pytest.mark.cases(flags=("audit-input",), events=("checkpoint_saved",), synchronous=False)
@scenario(fault_free.continued)
def test_a_second_run_trains_on_new_batches(outcome):
    sharding.second_run_has_new_batches(outcome.run, outcome.then)


@pytest.mark.claim("mwms/model-checkpoint-no-resume")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.model_checkpoint)
def test_model_checkpoint_alone_does_not_resume(outcome):
    program_results.model_checkpoint_does_not_resume(outcome.run, outcome.then)


@pytest.mark.claim("mwms/backup-dir-exclusive")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.shared_backup)
def test_a_shared_backup_directory_collides(outcome):
    program_results.shared_backup_collides(outcome.run, outcome.then)


@pytest.mark.claim("mwms/backup-dir-exclusive")
@pytest.mark.cases(families=("mwms",), fit=True)
@scenario(small_programs.separate_backup)
def test_a_backup_directory_of_its_own_resumes(outcome):
    program_results.separate_backup_resumes(outcome.run, outcome.then)


@pytest.mark.claim("ps1/supervisor-saves")
@pytest.mark.cases(families=("ps1",), events=("checkpoint_saved",), level="observed")
def test_the_supervisor_saves_while_it_trains(healthy):
    supervisor.supervisor_saves(healthy)


@pytest.mark.claim("ps1/supervisor-saves")
@pytest.mark.cases(families=("ps1",))
def test_the_supervisor_writes_summaries(healthy):
    supervisor.supervisor_writes_summaries(healthy)


@pytest.mark.claim("dtensor/checkpoint", "dtensor/reload-replicated")
@pytest.mark.cases(families=("dtensor",))
@scenario(small_programs.remeshed)
def test_a_checkpoint_restores_into_another_mesh(outcome):
    checkpoints.checkpoint_restores(outcome.sharded, outcome.smaller)
    checkpoints.training_continues(outcome.sharded, outcome.smaller)
    checkpoints.checkpoint_restores(outcome.smaller, outcome.larger)
    checkpoints.training_continues(outcome.smaller, outcome.larger)
