"""Checkpoints: who saves where, what remains, and what it gives back."""

import pytest

from reference_trainers import TRAINERS
from suite.harness import checks, probes, scenarios


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
def test_one_checkpoint_is_kept(scenario):
    pair = scenario(scenarios.continued)
    checks.checkpoint_kept_is_one(pair.run, pair.then)


@pytest.mark.claim(
    "mwms/checkpoint-manager",
    "mirrored/latest-restores",
    "dtensor/checkpoint",
    "estimator/resumes",
)
@pytest.mark.cases(events=("checkpoint_saved", "epoch"))
def test_the_latest_checkpoint_restores_and_training_goes_on(scenario):
    pair = scenario(scenarios.continued)
    checks.checkpoint_restores(pair.run, pair.then)
    checks.training_goes_on(pair.run, pair.then)


PORTABLE = [row for row in TRAINERS if row.portable]


def restores(scenario, source):
    def moved(launch):
        return scenarios.moved(launch, source)

    moved.__name__ = f"moved_{source.name}"
    found = scenario(moved)
    checks.checkpoint_restores(found.run, found.then)
    checks.equals_large_batch(found.then, found.reference)


@pytest.mark.claim("checkpoint/any-strategy", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("restore",))
def test_a_checkpoint_of_another_strategy_restores(case, scenario):
    """Of the next approach in the table: so each strategy's is restored, and each restores one."""
    names = [row.name for row in TRAINERS]
    own = names.index(case.trainer.name)
    restores(
        scenario, min(PORTABLE, key=lambda row: (names.index(row.name) - own - 1) % len(names))
    )


@pytest.mark.claim("checkpoint/any-strategy", "custom-mirrored/exactly-once")
@pytest.mark.cases(flags=("restore",))
@pytest.mark.parametrize("source", PORTABLE, ids=lambda row: row.name)
@pytest.mark.long
def test_a_checkpoint_of_every_strategy_restores(scenario, source):
    restores(scenario, source)


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


@pytest.mark.claim("dtensor/checkpoint")
@pytest.mark.cases(families=("dtensor",))
def test_a_checkpoint_restores_into_another_mesh(remeshed):
    checks.checkpoint_restores(remeshed.sharded, remeshed.smaller)
    checks.training_goes_on(remeshed.sharded, remeshed.smaller)
    checks.checkpoint_restores(remeshed.smaller, remeshed.larger)
    checks.training_goes_on(remeshed.smaller, remeshed.larger)
