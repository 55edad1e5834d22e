"""Fixtures for tests of the harness: real clusters of fake trainers, without TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reference_trainers import Trainer
from suite.harness import network
from suite.harness.cluster import Cluster
from suite.harness.engine import Engine
from suite.harness.progress import Progress
from suite.harness.waiting import Deadlines
from suite.meta import example
from suite.meta.sessions import SESSIONS, set_stage

Sessions = Mapping[str, Future[subprocess.CompletedProcess[str]]]


@dataclass(frozen=True)
class FakeLaunch:
    """As `session.Launch`, but a fake trainer has no case: the trainer must be named."""

    engine: Engine
    directory: Path

    def __call__(self, trainer: Trainer, **how: Any) -> Cluster:
        return self.engine.launch(trainer, **{"backend": "auto", "keras": "none", **how})


@pytest.fixture(scope="session")
def fake_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine whose zygote imports nothing, so that a fake task starts in milliseconds."""
    engine = Engine(
        python=sys.executable,
        flavours={"none": {}},
        network=network.probe(),
        deadlines=Deadlines(step_s=60, run_s=60, detect_s=2, leave_s=4, exit_s=30),
        directory=tmp_path_factory.mktemp("run"),
        progress=Progress(),
        session=f"meta-{os.getpid()}",
        preload=(),
    )
    yield engine
    engine.stop()


@pytest.fixture
def fake_launch(fake_engine: Engine, tmp_path: Path) -> FakeLaunch:
    """`launch` as tests of TensorFlow have it, for fake trainers."""
    return FakeLaunch(fake_engine, tmp_path)


@pytest.fixture(scope="session")
def plugin_stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sessions of the plug-in find their tests, and leave their runs."""
    directory = tmp_path_factory.mktemp("stage")
    set_stage(directory)
    return directory


@pytest.fixture(scope="session")
def sessions(plugin_stage: Path) -> Iterator[Sessions]:
    """All of SESSIONS and the worked example's, one after the other, in the background."""
    with ThreadPoolExecutor(1) as pool:
        yield {
            name: pool.submit(run, plugin_stage)
            for name, run in {**example.SESSIONS, **SESSIONS}.items()
        }


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Begin with what takes longest, if any test asks for it, while others use the other core."""
    asked = any("sessions" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if asked and not hasattr(request.config, "workerinput"):  # another worker may have those tests
        request.getfixturevalue("sessions")
