"""The local engine: clusters of processes on this machine, each in a network of its own.

Tests, checks and reports know only `launch`, which gives a Cluster; where and how its tasks run is
settled here, so that another engine can take this one's place.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from reference_trainers import Trainer
from suite.harness.cluster import addresses as network
from suite.harness.cluster.cluster import Cluster, Progress
from suite.harness.cluster.launch_spec import Plan
from suite.harness.cluster.zygote_client import SESSION_VARIABLE, ClusterInit, Zygote, ZygoteDied
from suite.harness.core import backends
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import HarnessError
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import MALLOC
from suite.harness.core.single_flight import SingleFlight
from suite.harness.core.topology import ROLE_VARIABLES, Topology
from suite.harness.environment.gpus import assign_gpus

# The environment variables by which TensorFlow sizes its pools (intra-op, inter-op).
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# What pytest's own environment happens to hold must not reach a task.
NOT_INHERITED = (
    *ROLE_VARIABLES,
    "TRAINER_EVENTS",
    "TRAINER_ATTEMPT",
    "TRAINER_HOLD",
    "PYTEST_CURRENT_TEST",
)


def to_inherit() -> dict[str, str]:
    """This process's environment, less what must not reach a task.

    To be asked for before tests begin: each sets and removes PYTEST_CURRENT_TEST, and os.environ
    cannot be gone through while another thread does that (KeyError).
    """
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


@dataclass
class Engine:
    """Zygotes, one for each environment, and the clusters that they fork."""

    python: str
    flavours: Mapping[str, Mapping[str, str]]  # Keras flavour -> its environment variables
    network: network.Network
    deadlines: Deadlines
    directory: Path  # the run directory: events/ and logs/ go there
    progress: Progress
    session: str
    defaults: Mapping[str, Any] = field(default_factory=dict)  # flags that every trainer gets
    spawn: str = "fork"
    preload: Sequence[str] = ("tensorflow",)
    workers: int | None = None  # --workers, for topologies that have any
    threads: int | None = None  # of each of TensorFlow's pools; None: as many as it wants
    malloc: str = "default"  # a row of MALLOC
    gpus: Sequence[str] = ()
    prefix: str = ""
    inherited: Mapping[str, str] = field(default_factory=to_inherit)
    zygotes: dict[str, Zygote] = field(default_factory=dict)
    restarts: list[str] = field(default_factory=list)  # zygotes that died and were started anew
    clusters: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    references: SingleFlight = field(
        default_factory=SingleFlight
    )  # runs that others are compared with
    stopped: bool = False
    lock: Lock = field(default_factory=Lock)  # scenarios are played by several threads

    def apart(self, name: str, **changes: Any) -> Engine:
        """Another engine of the same session, with zygotes of its own; stop it.

        It goes on with the numbers of this one's clusters, so that no two have the same files.
        """
        fresh: dict[str, Any] = {"zygotes": {}, "lock": Lock()}
        return replace(self, prefix=self.prefix + name, **fresh, **changes)

    def warm(self, *flavours: str) -> None:
        """Start the zygotes of these flavours, so that they import while other work goes on."""
        for flavour in flavours:
            self._zygote(flavour)

    def _zygote(self, flavour: str) -> Zygote:
        """The zygote of this flavour, started now or before.

        One that died is started anew. HarnessError when that one dies before a cluster has ended:
        it would end so each time.
        """
        with self.lock:
            if self.stopped:
                raise HarnessError("the session is over: no new cluster starts")
            dead = self.zygotes.get(flavour)
            if dead and not dead.has_died():
                return dead
            if dead:
                end = f"{flavour}: {dead.end()}"
                if dead.replaces_dead and not dead.worked:
                    raise HarnessError(f"{end}; the second in a row, so no other is started")
                self.restarts.append(end)
                dead.stop(self.deadlines)
            logs = self.directory / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            zygote = self.zygotes[flavour] = Zygote.start(
                self.python,
                self.environment(flavour),
                spawn=self.spawn,
                preload=self.preload,
                log=logs / f"zygote-{self.prefix}{flavour}.log",
                replaces_dead=dead is not None,
            )
            return zygote

    def environment(self, flavour: str) -> dict[str, str]:
        """What a task of that flavour inherits: what pytest began with, and what is set here."""
        return {
            **self.inherited,
            **backends.LOG_ENVIRONMENT,
            **self.flavours[flavour],
            **(dict.fromkeys(THREADS, str(self.threads)) if self.threads else {}),
            **MALLOC[self.malloc],
            SESSION_VARIABLE: self.session,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(ROOT), self.inherited.get("PYTHONPATH", "")])
            ),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        }

    def connect(self, flavour: str) -> ClusterInit:
        isolate = self.network.kind == network.NAMESPACE
        while True:
            try:
                return self._zygote(flavour).connect(self.deadlines, isolate=isolate)
            except ZygoteDied:
                continue  # nothing of the cluster has begun; `_zygote` starts another, or raises

    def topology(
        self,
        trainer: Trainer,
        jobs: Sequence[tuple[str, int]] | None = None,
        workers: int | None = None,
    ) -> Topology:
        """The trainer's cluster, or `jobs`; --workers counts where the test names no number."""
        topology = Topology(tuple(trainer.jobs if jobs is None else jobs))
        count = workers or (self.workers if jobs is None else None)
        return topology.with_workers(count) if count else topology

    def launch(
        self,
        trainer: Trainer,
        *,
        backend: str,
        keras: str,
        name: str = "run",
        workers: int | None = None,
        jobs: Sequence[tuple[str, int]] | None = None,
        model_dir: Path | None = None,
        flags: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        on_hosts: bool = False,
        on_disk: str = "",
    ) -> Cluster:
        """A cluster that has not started yet; enter it, then `start`.

        `jobs` replaces the trainer's topology, `workers` only its number of training workers.
        `name` says in file names and on the terminal what it is for. `flags` are the trainer's, by
        name without dashes: True is a switch, None leaves one out. `on_hosts`: each task on a host
        of its own; `on_disk`: a disk of that size for `model_dir`. Unsupported, both, where
        clusters have no namespaces of their own.
        """
        topology = self.topology(trainer, jobs, workers)
        flavour = keras if keras in self.flavours else next(iter(self.flavours))
        own = {"backend": backend, "devices": trainer.devices}
        given = {**self.defaults, **{k: v for k, v in own.items() if k in trainer.flags}}
        if model_dir:
            given["model-dir"] = model_dir
        addresses, release = self.network.addresses(
            topology.tasks, on_hosts, bool(on_disk), self.session
        )
        numbered = f"{self.prefix}{next(self.clusters):03d}-{name}"
        gpus = assign_gpus(self.gpus, topology.workers, trainer.devices)
        plan = Plan(
            trainer=trainer,
            topology=topology,
            addresses=addresses,
            backend=backend,
            keras=keras,
            flags={**given, **(flags or {})},
            env={**self.environment(flavour), **(env or {})},
            task_env={task: {"CUDA_VISIBLE_DEVICES": gpu} for task, gpu in gpus.items()},
            python=self.python,
            events=self.directory / "events" / numbered,
            logs=self.directory / "logs" / numbered,
            label=f"{name} {trainer.name} {backend} {keras}",
            on_hosts=on_hosts,
            on_disk=on_disk,
        )
        return Cluster(
            plan,
            lambda: self.connect(flavour),
            self.deadlines,
            self.progress,
            release,
            self.network.watch(addresses),
        )

    def stop(self) -> None:
        """End all zygotes and what they forked, for good."""
        with self.lock:
            self.stopped = True
            zygotes = list(self.zygotes.values())
            self.zygotes.clear()
        for zygote in zygotes:
            zygote.stop(self.deadlines)
