"""Tests of artifacts: what one version saved is loaded by another, whole and from a copy."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suite.harness.checks import checkpoints
from suite.harness.cluster.launcher import Engine
from suite.harness.core.errors import CheckFailed, HarnessError, Unsupported
from suite.harness.core.formats import CHECKPOINT, KERAS_FILE, PATHS, SAVED_MODEL
from suite.harness.environment.interpreter import Interpreter
from suite.harness.scenarios import other_versions
from suite.meta import fakes
from suite.meta.fakes import FakeCase

RESTORED: Any = other_versions.restored  # has attributes
OLD, NEW = (Interpreter("python", "3.11.7", version) for version in ("2.15.1", "2.21.0"))


@dataclass(frozen=True)
class Launch(FakeCase):
    """The launch of a fake in a session that has an artifact folder."""

    session: Any = None

    def with_version(self, interpreter: Interpreter, name: str) -> Launch:
        settings = SimpleNamespace(artifacts=str(self.directory.parent / "artifacts"))
        directory = self.directory / name
        directory.mkdir()
        session = SimpleNamespace(settings=settings, interpreter=interpreter)
        return replace(self, directory=directory, session=session)


@pytest.fixture
def old(fake_engine: Engine, tmp_path: Path) -> Launch:
    """Return a launch with the older version, in a folder without artifacts."""
    tmp_path = tmp_path / "launches"
    tmp_path.mkdir()
    engine = replace(fake_engine, defaults={"data": fakes.data_file(tmp_path), "seed": 7})
    return Launch(engine, tmp_path, fakes.WORKERS).with_version(OLD, "old")


def save(launch: Any) -> None:
    other_versions.saved(launch)


@pytest.fixture
def new(old: Launch) -> Launch:
    """Return a launch with the newer version, after the older one has saved."""
    save(old)
    return replace(old, directory=old.directory.parent).with_version(NEW, "new")


def artifact(launch: Launch) -> Path:
    folder = Path(launch.session.settings.artifacts)
    return folder / "2.15.1" / launch.trainer.name


def load(launch: Launch, scene: Any = RESTORED) -> Any:
    (found,) = [each for each in scene.each(launch.session) if each.means(launch.case)]
    return found(launch)


def test_another_version_restores_the_whole_checkpoint(new):
    outcome = load(new)
    assert outcome.run.of("checkpoint_saved")
    assert outcome.run.flags["epochs"] == 1
    checkpoints.checkpoint_restores(outcome.run, outcome.then)
    checkpoints.training_continues(outcome.run, outcome.then)


def test_a_version_that_forgets_the_optimizer_fails(new):
    outcome = load(replace(new, defect="forgets_the_optimizer"))
    with pytest.raises(CheckFailed, match="slots_digest"):
        checkpoints.checkpoint_restores(outcome.run, outcome.then)


def test_loading_leaves_the_artifact_as_it_was(new):
    def files() -> dict[str, bytes]:
        found = artifact(new).rglob("*")
        return {str(path): path.read_bytes() for path in found if path.is_file()}

    before = files()
    load(new)
    assert files() == before


def test_a_version_does_not_load_its_own_artifact(new):
    new.session.interpreter = OLD
    assert not any(each.means(new.case) for each in RESTORED.each(new.session))


def test_only_formats_that_were_saved_are_loaded(new):
    present = {kind: other_versions.Artifact(artifact(new)).has(kind) for kind in PATHS}
    assert present == {CHECKPOINT: True, SAVED_MODEL: True, KERAS_FILE: False}


def test_a_scenario_names_the_version_that_saved(new):
    (scene,) = RESTORED.each(new.session)
    assert (scene.__name__, scene.variant) == ("2.15.1", "saved by 2.15.1")


def test_saving_again_replaces_the_artifact(old):
    save(old)
    (artifact(old) / "left-over").touch()
    save(replace(old, directory=old.directory.parent).with_version(OLD, "again"))
    assert not (artifact(old) / "left-over").exists()
    assert [path.name for path in artifact(old).parent.iterdir()] == [old.trainer.name]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_text("{"), "is no artifact: JSONDecodeError"),
        (lambda path: path.write_text("{}"), "is no artifact: KeyError"),
        (lambda path: path.write_text("[]"), "is no artifact: TypeError"),
    ],
    ids=["cut", "empty", "other"],
)
def test_a_damaged_artifact_is_an_error_of_the_harness(new, damage, said):
    damage(artifact(new) / other_versions.RECORD)
    with pytest.raises(HarnessError, match=said):
        load(new)


def test_an_artifact_that_was_evaluated_on_other_data_is_refused(new):
    record = artifact(new) / other_versions.RECORD
    record.write_text(json.dumps({**json.loads(record.read_text()), "data": "0"}))
    with pytest.raises(HarnessError, match="other data: name the same file by --data"):
        load(new)


def test_data_count_by_their_arrays(tmp_path):
    arrays = {"x_train": np.arange(6), "y_train": np.zeros(2)}
    for name, save in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        save(tmp_path / name, **arrays)
    np.savez(tmp_path / "c.npz", **{**arrays, "y_train": np.ones(2)})
    a, b, c = (other_versions.digest(tmp_path / f"{name}.npz") for name in "abc")
    assert a == b != c


def test_what_a_trainer_refuses_to_read_is_unsupported(new):
    with pytest.raises(Unsupported, match=r"^fake.py: error: .* cannot be restored: it has"):
        load(replace(new, defect="refuses_checkpoints"))
