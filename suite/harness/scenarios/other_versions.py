"""Save what this TensorFlow writes (--artifacts DIR), and load what other versions saved there.

An artifact is the directory DIR/VERSIONS/TRAINER. It has a trained model in each format of
core/formats.py, the events of the run that saved it, and a description (saved.json). A scenario
works on a copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reference_trainers import Trainer
from reports.core import labels
from suite.harness.core import history
from suite.harness.core.case import Case
from suite.harness.core.errors import HarnessError
from suite.harness.core.formats import CHECKPOINT, KERAS_FILE, PATHS, SAVED_MODEL
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Continued, Saved
from suite.harness.core.versions import NO_KERAS
from suite.harness.environment.interpreter import Interpreter
from suite.harness.scenarios.base import complete, work
from suite.harness.scenarios.small_programs import NOT_TAKEN, complete_alone, evaluate_signature
from suite.harness.session.session import Launch, Scenario, Session

RECORD = "saved.json"
EVENTS = "events"
STATE = "checkpoint"  # the file with which TensorFlow finds the last checkpoint of a directory
STEPS = 10
Loader = Callable[[Launch, Run, Path], Run]


def writer(interpreter: Interpreter, keras: str) -> str:
    """Return the name of the versions of an artifact: `2.15.1-keras2-2.15.0`, or `2.15.1`."""
    return labels.of_versions(interpreter.tensorflow, interpreter.label(keras))


@dataclass(frozen=True)
class Artifact:
    """What one approach saved with one TensorFlow and Keras."""

    directory: Path

    def has(self, kind: str) -> bool:
        return (self.directory / RECORD).is_file() and (self.directory / PATHS[kind]).exists()

    def copy(self, directory: Path, trainer: Trainer, data: Path) -> Run:
        """Copy the artifact and return the run that saved it, with the paths of the copies.

        Raise HarnessError if the artifact is damaged, or if its model was evaluated on other data.
        """
        try:
            record = json.loads((self.directory / RECORD).read_text("utf-8"))
            was, given, of_data = record["directory"], record["flags"], record["data"]
            shutil.copytree(self.directory, directory)
            # tf.compat.v1.train.Saver and the Estimator write absolute paths.
            for state in (*directory.rglob(STATE), *directory.glob(f"{EVENTS}/*.jsonl")):
                if state.is_file():
                    moved = state.read_text("utf-8").replace(was, str(directory))
                    state.write_text(moved, "utf-8")
            events = history.read(directory / EVENTS)
            tasks, workers = tuple(record["tasks"]), tuple(record["workers"])
            backend, keras = record["backend"], record["keras"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HarnessError(f"{self.directory} is no artifact: {error!r}") from error
        if of_data != digest(data):
            raise HarnessError(
                f"{self.directory} was evaluated on other data: name the same file by --data"
            )
        return Run(trainer, tasks, workers, backend, keras, events, given, directory)


def digest(data: Path) -> str:
    """Return sha256 (hex) of the arrays in a file of data; the file itself depends on numpy."""
    total = hashlib.sha256()
    with np.load(data) as file:
        for name in sorted(file.files):
            total.update(name.encode() + file[name].tobytes())
    return total.hexdigest()


def saved(launch: Launch) -> Saved:
    """Train some steps, save in each format that the approach has, and store the artifact.

    It replaces what these versions saved before, unless the run fails.
    """
    directory = launch.directory / "saved"
    own = directory / "export"
    flags = _work(launch, 1, evaluate=True, export=own)
    run = complete(
        launch, flags=flags, model_dir=directory / PATHS[CHECKPOINT], **_one_worker(launch)
    )
    if own.exists() and launch.case.keras != NO_KERAS:
        files = {
            "keras-file": directory / PATHS[KERAS_FILE],
            "saved-model": directory / PATHS[SAVED_MODEL],
        }
        exported = run.of("exported", run.drivers[0])[-1]["path"]
        complete_alone(launch, "save_formats", {**NOT_TAKEN, **files, "export": exported})
    elif own.exists():
        os.rename(own, directory / PATHS[SAVED_MODEL])
    _store(launch, run, directory, Path(flags["data"]))
    return Saved(run, tuple(kind for kind, path in PATHS.items() if (directory / path).exists()))


def _one_worker(launch: Launch) -> dict[str, Any]:
    """Return the arguments of a cluster whose chief knows the last state.

    An asynchronous worker without a coordinator does not know when others make the last step.
    """
    return {"workers": 1} if launch.case.trainer.role == "host_flags" else {}


def _work(launch: Launch, epochs: int, **flags: Any) -> dict[str, Any]:
    return work(launch, epochs=epochs, steps_per_epoch=STEPS, optimizer="momentum", **flags)


def _store(launch: Launch, run: Run, directory: Path, data: Path) -> None:
    """Describe the run and put its directory in the place of these versions' artifact."""
    given = {name: value for name, value in run.flags.items() if value is not None}
    record = {
        "directory": str(directory),
        "data": digest(data),
        "tasks": run.tasks,
        "workers": run.workers,
        "backend": run.backend,
        "keras": run.keras,
        "flags": {n: v if isinstance(v, int | float) else str(v) for n, v in given.items()},
    }
    (directory / EVENTS).mkdir()
    for events in run.directory.glob("*.jsonl"):
        shutil.copy(events, directory / EVENTS)
    (directory / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    folder = Path(str(launch.session.settings.artifacts))
    target = folder / writer(launch.session.interpreter, run.keras) / run.trainer.name
    target.parent.mkdir(parents=True, exist_ok=True)
    # Next to the target, so that the last rename replaces it at once.
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
        new = Path(temporary) / target.name
        shutil.copytree(directory, new)
        if target.exists():
            os.rename(target, Path(temporary) / "old")
        os.rename(new, target)


def for_each_version(kind: str, load: Loader) -> Scenario:
    """Return the scenario that represents one of each version that saved in this format.

    Each copies the artifact and calls `load` with the run that saved it and the data.
    """

    def scene(launch: Launch) -> Continued:
        raise HarnessError(f"{launch.name} has no artifact")

    def of(session: Session) -> list[Scenario]:
        folder = Path(str(session.settings.artifacts))
        found = sorted(p for p in folder.glob("[!.]*") if p.is_dir())
        return [_from(directory, session.interpreter, kind, load) for directory in found]

    scene.each, scene.means = of, lambda _: False  # type: ignore[attr-defined]
    return scene


def _from(directory: Path, interpreter: Interpreter, kind: str, load: Loader) -> Scenario:
    """Return the scenario of what these versions saved."""

    def scene(launch: Launch) -> Continued:
        data = Path(_work(launch, 1)["data"])
        trainer = launch.case.trainer
        artifact = Artifact(directory / trainer.name)
        run = artifact.copy(launch.directory / "saved", trainer, data)
        return Continued(run, load(launch, run, data))

    def means(case: Case) -> bool:
        other = directory.name != writer(interpreter, case.keras)
        return other and Artifact(directory / case.trainer.name).has(kind)

    scene.__name__ = directory.name
    scene.means = means  # type: ignore[attr-defined]
    scene.variant = f"{labels.SAVED_BY}{directory.name}"  # type: ignore[attr-defined]
    return scene


def _continue(launch: Launch, run: Run, data: Path) -> Run:  # noqa: ARG001 (as the other loaders)
    """Run the same program on the model directory, for one epoch more."""
    directory = run.directory / PATHS[CHECKPOINT]
    how = {"model_dir": directory, "may_refuse": True, **_one_worker(launch)}
    return complete(launch, flags=_work(launch, 2), **how)


def _evaluate_signature(launch: Launch, run: Run, data: Path) -> Run:
    return evaluate_signature(launch, run.directory / PATHS[SAVED_MODEL], data)


def _load_keras_file(launch: Launch, run: Run, data: Path) -> Run:
    flags = {"data": data, "export": run.directory / PATHS[KERAS_FILE], "may-refuse": True}
    return complete_alone(launch, "load_export", flags)


restored = for_each_version(CHECKPOINT, _continue)
evaluated = for_each_version(SAVED_MODEL, _evaluate_signature)
loaded = for_each_version(KERAS_FILE, _load_keras_file)
