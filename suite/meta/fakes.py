"""Rows for the fake trainer, one for each family, and a `launch` that starts them."""

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

# What the program imports: done once, in the zygote, it costs a fake nothing.
IMPORTS = (
    *("argparse", "hashlib", "json", "random", "shutil", "socket", "threading", "zipfile"),
    *("operator", "select", "struct"),
    *("reference_trainers.events", "reference_trainers.peer_errors"),
)
PROGRAM = str(Path(__file__).with_name("fake_trainer.py"))


def fake(name: str, of: str) -> Trainer:
    """The fake in the role of a reference trainer: the same row with another program."""
    return replace(BY_NAME[of], name=name, path=PROGRAM, keras=False)


def bare(program: Path, jobs: tuple[tuple[str, int], ...] = ()) -> Trainer:
    """A row for a small program of a test's own, which takes no flags and tells of nothing."""
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
    """A flag of a scenario, for the toy: it learns faster, and all its workers are up at once."""
    if flag == "batch-size" and value >= WORK["batch-size"]:
        return value // 4
    if flag == "steps-per-epoch" and value == ASYNCHRONOUS_STEPS:
        return value // 5
    if flag == "learning-rate":
        return min(value, WORK["learning-rate"])
    return value


def data_file(directory: Path, train: int = 600, test: int = 100) -> Path:
    """An .npz of which fakes read nothing but the numbers of examples."""
    path = directory / "toy.npz"
    arrays: dict[str, Any] = {}
    for part, n in {"train": train, "test": test}.items():
        arrays[f"x_{part}"] = np.zeros((n, 28, 28), np.uint8)
        arrays[f"y_{part}"] = np.zeros(n, np.int64)
    np.savez(path, **arrays)
    return path


def toy_engine(engine: Engine, directory: Path, detect_s: float) -> Engine:
    """Return an engine like that, with toy data, whose zygote is ready; the caller stops it."""
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
    """What a scenario is given (`staging.Launch`), for one fake with at most one defect."""

    engine: Engine
    directory: Path
    trainer: Trainer
    defect: str = ""
    moment: str = ""  # of the fault table, where a row of it is played

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
        # The next epoch's first step comes after the save; not in a smaller cluster that goes on.
        if self.moment == "saving" and interrupted and "workers" not in how:
            how["env"]["FAKE_LAG_AT"] = str(2 * how["flags"]["steps-per-epoch"] + 1)
        return self.engine.launch(trainer, **how)

    def outcome(self, scene: Callable[[Any], Any]) -> Any:
        """Another scenario's, with the same defect."""
        directory = self.directory / scene.__name__
        directory.mkdir()
        return scene(replace(self, directory=directory))
