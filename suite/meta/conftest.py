"""Fixtures for tests of the harness: real clusters of fake trainers, without TensorFlow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reference_trainers import Trainer
from suite.harness.cluster import addresses
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Engine
from suite.harness.core.deadlines import Deadlines
from suite.harness.pytest_plugin.progress import Progress
from suite.meta import example
from suite.meta.sessions import SESSIONS, Background, set_stage, stop_forkers


@dataclass(frozen=True)
class FakeLaunch:
    """The fakes' version of `session.Launch`: without a case, so the caller names the trainer."""

    engine: Engine
    directory: Path

    def __call__(self, trainer: Trainer, **how: Any) -> Cluster:
        return self.engine.launch(trainer, **{"backend": "auto", "keras": "none", **how})


@pytest.fixture(scope="session")
def fake_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Yield an engine whose zygote imports nothing, so that a fake task starts in milliseconds."""
    engine = Engine(
        python=sys.executable,
        flavors={"none": {}},
        network=addresses.probe(),
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
    """Return the equivalent of the `launch` fixture of the TensorFlow tests, for fake trainers."""
    return FakeLaunch(fake_engine, tmp_path)


@pytest.fixture(scope="session")
def plugin_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the directory that holds the tests and the runs of the plug-in's sessions."""
    directory = tmp_path_factory.mktemp("stage")
    set_stage(directory)
    yield directory
    stop_forkers()


@pytest.fixture(scope="session")
def sessions(plugin_stage: Path) -> Iterator[Background]:
    """Run SESSIONS and the worked example's sessions sequentially, in the background."""
    background = Background({**example.SESSIONS, **SESSIONS}, plugin_stage)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(background.run)
        yield background
        background.stop()


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Start the slowest sessions first if any test needs them; other tests use the other core."""
    asked = any("sessions" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if asked and not hasattr(request.config, "workerinput"):  # another worker may have those tests
        request.getfixturevalue("sessions")
