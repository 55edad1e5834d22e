"""Builds a session from what the user asked for: interpreter, data, network, engine, rows.

The controller settles everything once and hands it, as plain data, to pytest-xdist's workers, so
that all of them run on the same data with the same seed into the same run directory.
"""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from suite.harness import backends, data, environments, network, sides
from suite.harness.claims import Claims
from suite.harness.cluster import Progress
from suite.harness.engine import Engine
from suite.harness.errors import BadInput
from suite.harness.expectations import Expectations
from suite.harness.options import Settings
from suite.harness.process import ROOT
from suite.harness.recording import point_latest_at
from suite.harness.session import Session
from suite.harness.waiting import Deadlines

RUNS = ROOT / "reports" / "runs"


@dataclass(frozen=True)
class Settled:
    """What the controller decided, as plain data."""

    settings: dict[str, Any]
    interpreter: dict[str, Any]
    dataset: dict[str, Any]
    network: dict[str, str]
    directory: str
    session: str


def settle(settings: Settings) -> Settled:
    """Find everything that a run needs and make its directory; BadInput for what cannot be."""
    interpreter = environments.describe(settings.python or sys.executable)
    interpreter.choose(settings.keras)
    sides.check(settings.base)
    if settings.cpus:
        os.sched_setaffinity(0, settings.cpus)  # pytest-xdist's workers and all tasks inherit it
    dataset = data.resolve(settings.data)
    directory = run_directory(settings.run_dir)
    return Settled(
        settings=settings.to_dict(),
        interpreter=interpreter.to_dict(),
        dataset=dataset.to_dict(),
        network=asdict(network.probe(interpreter.python)),
        directory=str(directory),
        session=uuid.uuid4().hex,
    )


def run_directory(wanted: str | None) -> Path:
    """A new directory for the run; BadInput when it cannot be written or holds one, or a part."""
    name = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S") + f"-{os.getpid()}"
    directory = (Path(wanted) if wanted else RUNS / name).resolve()
    if (directory / "run.json").exists():
        raise BadInput(f"--run-dir {directory}: holds a finished run; give an empty directory")
    if (directory / "events").exists():
        raise BadInput(f"--run-dir {directory}: holds an interrupted run; give an empty directory")
    probe = directory / ".writable"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
        if not wanted:
            point_latest_at(directory)
    except OSError as error:
        raise BadInput(f"--run-dir {directory}: cannot be written: {error.strerror}") from error
    return directory


def build(settled: Settled, progress: Progress, prefix: str = "") -> Session:
    """The session of one pytest process; `prefix` names a worker of pytest-xdist in file names."""
    settings = Settings.from_dict(settled.settings)
    interpreter = environments.Interpreter.from_dict(settled.interpreter)
    dataset = data.Dataset.from_dict(settled.dataset)
    chosen = interpreter.choose(settings.keras)
    engine = Engine(
        python=interpreter.python,
        flavours={name: interpreter.environment(name) for name in chosen},
        network=network.Network(**settled.network),
        deadlines=Deadlines().scaled(settings.deadline_scale),
        directory=Path(settled.directory),
        progress=progress,
        session=settled.session,
        defaults={"data": dataset.path, "seed": settings.seed},
        spawn=settings.spawn,
        workers=settings.workers,
        threads=settings.threads,
        malloc=settings.malloc or "default",
        gpus=backends.discover_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")),
        prefix=prefix,
    )
    return Session(settings, interpreter, engine, dataset, Claims.load(), Expectations.load())


def header(session: Session) -> list[str]:
    """What pytest prints before it collects: what is examined, on what, and where it goes."""
    interpreter, engine, settings = session.interpreter, session.engine, session.settings
    flavours = ", ".join(interpreter.label(name) for name in engine.flavours)
    lines = [
        f"TensorFlow {interpreter.tensorflow}, {flavours}, Python {interpreter.python_version}",
        f"network: {engine.network.kind} ({engine.network.reason}); tasks: {engine.spawn}",
        f"data: {session.dataset.describe()}; seed: {settings.seed}",
        f"run directory: {engine.directory}",
    ]
    if settings.workers:
        lines.append(f"--workers {settings.workers}: trainers of one process ignore it")
    return lines
