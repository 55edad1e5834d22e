"""Table rows for the fake trainer, one for each family, and a `launch` that starts the fakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reference_trainers import BY_NAME, Trainer
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Engine
from suite.harness.core.case import Case
from suite.harness.scenarios import crashes
from suite.harness.scenarios.base import ASYNCHRONOUS_STEPS, WORK

# Imports of the program. The zygote imports them once, so that a fake starts without that cost.
IMPORTS = (
    *("argparse", "hashlib", "json", "random", "shutil", "socket", "threading", "zipfile"),
    *("operator", "select", "struct"),
    *("reference_trainers.support.events", "reference_trainers.support.peer_errors"),
)
PROGRAM = str(Path(__file__).with_name("fake_trainer.py"))


def fake(name: str, of: str) -> Trainer:
    """Return a fake in the role of a reference trainer: the same row with another program."""
    return replace(BY_NAME[of], name=name, path=PROGRAM, keras=False, plain=False)


def bare(program: Path, jobs: tuple[tuple[str, int], ...] = ()) -> Trainer:
    """Return a row for a test's own small program, which takes no flags and reports no events."""
    return Trainer(
        name="fake",
        document="",
        api="",
        jobs=jobs,
        role="tf_config" if jobs else "none",
        backends=("none",),
        keras=False,
        families=(),
        synchronous=True,
        events=(),
        flags=(),
        path=str(program),
    )


WORKERS = fake("fake_workers", "keras_multi_worker_mirrored")
LOOP = fake("fake_loop", "custom_loop_multi_worker_mirrored")
SERVERS = fake("fake_servers", "supervisor_parameter_server")
AGGREGATES = fake("fake_aggregates", "sync_replicas_parameter_server")
SINGLE = fake("fake_single", "single_process")
MIRRORED = fake("fake_mirrored", "keras_mirrored")


def smaller(flag: str, value: Any) -> Any:
    """Return a scenario's flag scaled for the toy model.

    The toy learns faster, and all its workers are up at once.
    """
    if flag == "batch-size" and value >= WORK["batch-size"]:
        return value // 4
    if flag == "steps-per-epoch" and value == ASYNCHRONOUS_STEPS:
        return value // 5
    if flag == "learning-rate":
        return min(value, WORK["learning-rate"])
    return value


def data_file(directory: Path, train: int = 600, test: int = 100) -> Path:
    """Write an .npz of which fakes read only the numbers of examples."""
    path = directory / "toy.npz"
    arrays: dict[str, Any] = {}
    for part, n in {"train": train, "test": test}.items():
        arrays[f"x_{part}"] = np.zeros((n, 28, 28), np.uint8)
        arrays[f"y_{part}"] = np.zeros(n, np.int64)
    np.savez(path, **arrays)
    return path


def toy_engine(engine: Engine, directory: Path, detect_s: float) -> Engine:
    """Return a copy of the engine with toy data and a ready zygote. The caller stops it."""
    toy = replace(
        engine,
        directory=directory,
        defaults={"data": data_file(directory), "seed": 7},
        deadlines=replace(engine.deadlines, detect_s=detect_s),
        preload=IMPORTS,
        zygotes={},
    )
    toy.warm("none")
    toy.zygotes["none"].wait_ready(toy.deadlines)  # before several threads ask for it
    return toy


@dataclass(frozen=True)
class FakeCase:
    """The launch that a scenario gets (`staging.Launch`), for one fake with at most one defect."""

    engine: Engine
    directory: Path
    trainer: Trainer
    defect: str = ""
    injection_point: str = ""  # the row's injection point, in a scenario of the fault matrix

    @property
    def case(self) -> Case:
        return Case(self.trainer, self.trainer.backends[-1], "none")

    def __call__(self, trainer: Trainer | None = None, **how: Any) -> Cluster:
        trainer = trainer or self.trainer
        how = {"backend": self.case.backend, "keras": "none", **how}
        how["flags"] = {k: smaller(k, v) for k, v in how.get("flags", {}).items()}
        how["env"] = {"FAKE_DEFECT": self.defect}
        if trainer.aggregates:
            how["env"]["FAKE_AGGREGATES"] = "1"
        interrupted = how.get("model_dir", self.directory).name == crashes.INTERRUPTED
        # Delay the next epoch's first step until after the save, except in a smaller cluster.
        if self.injection_point == "saving" and interrupted and "workers" not in how:
            how["env"]["FAKE_LAG_AT"] = str(2 * how["flags"]["steps-per-epoch"] + 1)
        return self.engine.launch(trainer, **how)

    def outcome(self, scene: Callable[[Any], Any]) -> Any:
        """Return the outcome of another scenario with the same defect."""
        directory = self.directory / scene.__name__
        directory.mkdir()
        return scene(replace(self, directory=directory))
