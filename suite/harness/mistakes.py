"""Scenarios in which a user makes a mistake: wrong roles, checkpoints that cannot be restored."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.harness.run import Run
from suite.harness.scenarios import FEW, Launch, work

CLUSTER = {"worker": ["localhost:2222", "localhost:2223"]}
TF_CONFIGS: Mapping[str, str] = {
    "not JSON": "{",
    "no task": json.dumps({"cluster": CLUSTER}),
    "index out of range": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}),
    "unknown job": json.dumps(
        {"cluster": {**CLUSTER, "master": ["localhost:1"]}, "task": {"type": "master", "index": 0}}
    ),
}


@dataclass(frozen=True)
class Mistaken:
    """What came of a run on a directory, and digests of all files there before and after it."""

    run: Run
    before: Mapping[str, str]
    after: Mapping[str, str]


def with_tf_config(launch: Launch, config: str) -> Run:
    """One process that is told this TF_CONFIG, whatever it says."""
    ends = replace(launch.case.trainer, services=())  # whatever its job would be
    with launch(ends, jobs=(), flags=work(launch), env={"TF_CONFIG": config}) as cluster:
        cluster.start()
        return cluster.finish()


def another_model(launch: Launch, finished: Run) -> Mistaken:
    """A finished run's directory, for a trainer that is asked for another model."""
    other = "cnn" if launch.case.trainer.model != "cnn" else "pooled-cnn"
    return _again(launch, finished, model=other)


def cut_short(launch: Launch, finished: Run) -> Mistaken:
    """A finished run's directory, of whose checkpoints all files of weights are cut in half."""
    return _again(launch, finished, cut=True)


def _again(launch: Launch, finished: Run, cut: bool = False, **flags: Any) -> Mistaken:
    directory = launch.directory / "copy"
    shutil.copytree(finished.flags["model-dir"], directory)
    for path in _files(directory) if cut else ():
        if ".data-" in path.name or path.suffix == ".h5":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = _digests(directory)
    given = work(launch, epochs=3, steps_per_epoch=FEW, optimizer="momentum", **flags)
    with launch(flags=given, model_dir=directory) as cluster:
        cluster.start()
        run = cluster.finish()
    return Mistaken(run, before, _digests(directory))


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _files(directory)
    }
