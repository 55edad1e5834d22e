"""Build a session from the user's options: interpreter, data, network, engine, tables.

The controller decides everything once and passes it as plain data to pytest-xdist's workers, so
that all of them use the same data, the same seed and the same run directory.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from suite.harness.cluster import addresses
from suite.harness.cluster.cluster import Progress
from suite.harness.cluster.launcher import Engine
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import BadInput
from suite.harness.core.settings import Settings
from suite.harness.engines import ray_engine, simulated_cluster
from suite.harness.engines.ray_engine import RayEngine
from suite.harness.environment import dataset
from suite.harness.environment.gpus import discover_gpus
from suite.harness.environment.interpreter import Interpreter, describe
from suite.harness.session import prefetch
from suite.harness.session.run_directory import run_directory
from suite.harness.session.session import Session
from suite.harness.tables.claims import Claims
from suite.harness.tables.expectations import Expectations
from suite.harness.tables.programs import programs


@dataclass(frozen=True)
class Settled:
    """The controller's decisions as plain data."""

    settings: dict[str, Any]
    interpreter: dict[str, Any]
    dataset: dict[str, Any]
    network: dict[str, str]
    gpus: Sequence[str]
    directory: str
    session: str
    engine: dict[str, str]  # arguments of the engine's row in ENGINES


# For invocations that run no test.
NO_DATA = dataset.Dataset("", "none", 0, 0, "")
NO_NETWORK = addresses.Network("none", "no test runs")


# Where the tasks of a run may run; a row for each value of --engine.
ENGINES: Mapping[str, type[Engine]] = {"local": Engine, "ray": RayEngine}


def settle(
    settings: Settings,
    *,
    runs: bool = True,
    at_end: Callable[[Callable[[], None]], object] = lambda _: None,
) -> Settled:
    """Determine everything that a run needs and create its directory; BadInput if impossible.

    `at_end` registers what ends the nodes that were started for the run, if there are any.

    Unless tests run (`runs`), nothing is created, downloaded or probed: listing tests needs only
    tables.
    """
    interpreter = describe(settings.python or sys.executable, settings.deadline_scale)
    interpreter.choose(settings.keras)
    programs(settings.trainers, settings.spawn)
    session = uuid.uuid4().hex
    found, own = NO_NETWORK, {}
    check_engine_options(settings)
    if runs and settings.engine == "ray":
        own, found = ray_cluster(settings, at_end)
    elif runs:
        found = addresses.probe(interpreter.python).with_closed_ports(session)
    if settings.closed_ports and found.open_ports:
        raise BadInput(
            f"--closed-ports: nothing closes ports here ({found.why_open}) and "
            f"{found.reason}; {addresses.REMEDY}"
        )
    if settings.cpus:
        os.sched_setaffinity(0, settings.cpus)  # pytest-xdist's workers and all tasks inherit it
    gpus = discover_gpus(os.environ) if runs and settings.engine != "ray" else ()
    data = dataset.resolve(settings.data) if runs else NO_DATA
    return Settled(
        settings=replace(settings, at_once=settings.at_once or prefetch.sensible()).to_dict(),
        interpreter=interpreter.to_dict(),
        dataset=data.to_dict(),
        network=asdict(found),
        gpus=gpus,
        directory=str(run_directory(settings.run_dir)) if runs else "",
        session=session,
        engine=own,
    )


def check_engine_options(settings: Settings) -> None:
    """Raise BadInput for options of an engine that was not chosen, or that need another one."""
    for flag, given in (
        ("--ray-address", settings.ray_address),
        ("--shared-dir", settings.shared_dir),
        ("--placement", settings.placement),
        ("--kill-node", settings.kill_node),
    ):
        if given and settings.engine != "ray":
            raise BadInput(f"{flag} {given}: only with --engine ray")
    if settings.kill_node is not None:
        check_kill_node(settings)
    if settings.ray_address and not settings.shared_dir:
        raise BadInput(
            f"--ray-address {settings.ray_address}: needs --shared-dir, a directory that every "
            "node mounts, for checkpoints"
        )


def check_kill_node(settings: Settings) -> None:
    """Raise BadInput for a command that cannot be started, or that ends no certain node."""
    command = f"--kill-node {settings.kill_node}"
    if not settings.ray_address:
        raise BadInput(f"{command}: only with --ray-address; simulated nodes need no command")
    try:
        words = shlex.split(settings.kill_node or "")
    except ValueError as error:
        raise BadInput(f"{command}: is no command: {error}") from error
    if "{ip}" not in command:
        raise BadInput(f"{command}: must have {{ip}}, which becomes the node's address")
    if not shutil.which(words[0]):
        raise BadInput(f"{command}: there is no program {words[0]}")


def ray_cluster(
    settings: Settings, at_end: Callable[[Callable[[], None]], object]
) -> tuple[dict[str, str], addresses.Network]:
    """Return the Ray cluster's address and its nodes' shared directory, and the network of tasks.

    Without --ray-address, nodes start on this machine.
    """
    address, started = settings.ray_address, None
    if address is None:
        started = simulated_cluster.start_nodes(Deadlines().scaled(settings.deadline_scale))
        at_end(started.end)
        address = started.address
    own = {
        "address": address,
        "shared": settings.shared_dir or tempfile.gettempdir(),
        "placement": settings.placement or "spread",
        "kill_node": settings.kill_node or "",
        "requests": started.requests if started and not started.shared_network else "",
    }
    return own, ray_engine.network(address, started)


def build(settled: Settled, progress: Progress, prefix: str = "", processes: int = 1) -> Session:
    """Return the session of one pytest process; `prefix` names an xdist worker in file names.

    The `processes` divide the number of concurrent scenarios among them, rounded up.
    """
    settings = Settings.from_dict(settled.settings)
    settings = replace(settings, at_once=math.ceil(settings.at_once / processes))
    interpreter = Interpreter.from_dict(settled.interpreter)
    data = dataset.Dataset.from_dict(settled.dataset)
    chosen = interpreter.choose(settings.keras)
    own: dict[str, Any] = settled.engine
    engine = ENGINES[settings.engine](
        python=interpreter.python,
        flavors={name: interpreter.environment(name) for name in chosen},
        network=addresses.Network(**settled.network),
        deadlines=Deadlines().scaled(settings.deadline_scale),
        directory=Path(settled.directory),
        progress=progress,
        session=settled.session,
        defaults={"data": data.path, "seed": settings.seed},
        spawn=settings.spawn or "fork",
        workers=settings.workers,
        threads=settings.threads,
        malloc=settings.malloc or "default",
        gpus=settled.gpus,
        prefix=prefix,
        **own,
    )
    tables = (Claims.load(), Expectations.load())
    found = programs(settings.trainers, settings.spawn)
    return Session(settings, interpreter, engine, data, *tables, programs=found)


def header(session: Session, *, runs: bool = True) -> list[str]:
    """Return the lines of pytest's header: versions, network, data, seed and run directory."""
    interpreter, engine, settings = session.interpreter, session.engine, session.settings
    flavors = ", ".join(interpreter.label(name) for name in engine.flavors)
    examined = f"TensorFlow {interpreter.tensorflow}, {flavors}"
    lines = [f"{examined}, Python {interpreter.python_version}"]
    if not runs:
        return lines
    lines += [
        f"network: {engine.network.kind} ({engine.network.reason}); tasks: {engine.spawn}",
        f"data: {session.dataset.describe()}; seed: {settings.seed}",
        f"scenarios at once: {settings.at_once}",
        f"run directory: {engine.directory}",
    ]
    lines += [f"program {program.describe()}" for program in session.programs]
    if engine.network.firewall:
        lines.append(f"ports: closed to other users and machines by {engine.network.firewall}")
    if engine.network.warning:
        lines.append(f"WARNING: {engine.network.warning}")
    if settings.workers:
        lines.append(f"--workers {settings.workers}: trainers of one process ignore it")
    return lines
