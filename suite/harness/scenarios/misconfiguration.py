"""Define the scenarios of user mistakes: wrong roles, checkpoints that cannot be restored."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from suite.harness.core.history import Run
from suite.harness.core.outcomes import Misconfigured
from suite.harness.scenarios.base import FEW, Launch, work
from suite.harness.scenarios.crashes import AS_INTERRUPTED, interrupted
from suite.harness.scenarios.fault_free import continued

CLUSTER = {"worker": ["localhost:2222", "localhost:2223"]}
MASTER = {**CLUSTER, "master": ["localhost:2224"]}
TF_CONFIGS = (
    "{",  # not JSON
    json.dumps({"cluster": CLUSTER}),  # no task
    json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}),  # out of range
    json.dumps({"cluster": MASTER, "task": {"type": "master", "index": 0}}),  # an unknown job
)


def wrong_tf_configs(launch: Launch) -> list[Run]:
    """Run one process for each of TF_CONFIGS, all at once."""
    ends = replace(launch.case.trainer, services=())  # each process must exit, whatever its job
    with contextlib.ExitStack() as stack:
        clusters = [
            stack.enter_context(
                launch(ends, jobs=(), flags=work(launch), env={"TF_CONFIG": config})
            )
            for config in TF_CONFIGS
        ]
        for cluster in clusters:
            cluster.start()
        return [cluster.finish() for cluster in clusters]


def another_model(launch: Launch) -> Misconfigured:
    """Train another model in the directory of `continued`."""
    other = "cnn" if launch.case.trainer.model != "cnn" else "pooled-cnn"
    return _again(launch, model=other)


def cut_short(launch: Launch) -> Misconfigured:
    """Train in the directory of `continued`, with all files of weights cut in half."""
    return _again(launch, cut=True)


def backup_cut_short(launch: Launch) -> Misconfigured:
    """Restart `interrupted` with all files of weights in its backup cut in half."""
    saved = Path(launch.outcome(interrupted).run.flags["model-dir"]).with_name(AS_INTERRUPTED)
    return _again(launch, saved, cut=True)


# Other trainers have one kind of checkpoint only, that of `cut_short`.
backup_cut_short.means = lambda case: case.trainer.fit  # type: ignore[attr-defined]


def _again(
    launch: Launch, saved: Path | None = None, cut: bool = False, **flags: Any
) -> Misconfigured:
    directory = launch.directory / "copy"
    shutil.copytree(saved or launch.outcome(continued).then.flags["model-dir"], directory)
    for path in _files(directory) if cut else ():
        if ".data-" in path.name or path.suffix == ".h5":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = _digests(directory)
    given = work(launch, epochs=3, steps_per_epoch=FEW, optimizer="momentum", **flags)
    with launch(flags=given, model_dir=directory) as cluster:
        cluster.start()
        run = cluster.finish()
    return Misconfigured(run, before, _digests(directory))


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _files(directory)
    }
