"""The local engine: clusters of processes on this machine, each with its own network.

Tests, checks and reports use only `launch`, which returns a Cluster. `place` alone decides where
and how its tasks run; the Ray engine has another.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from reference_trainers import Trainer
from suite.harness.cluster import zygote_client
from suite.harness.cluster.addresses import NAMESPACE, Network
from suite.harness.cluster.cluster import Cluster, Progress
from suite.harness.cluster.connections import PortWatch
from suite.harness.cluster.harness_use import HarnessUse
from suite.harness.cluster.launch_spec import Plan
from suite.harness.cluster.zygote_client import (
    SESSION_VARIABLE,
    ClusterInit,
    InitConnection,
    Zygote,
)
from suite.harness.core import backends
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import MALLOC
from suite.harness.core.single_flight import SingleFlight
from suite.harness.core.topology import ROLE_VARIABLES, Topology
from suite.harness.environment.gpus import assign_gpus, enough

# Environment variables that set the sizes of TensorFlow's thread pools (intra-op, inter-op).
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# What pytest's own environment happens to hold must not reach a task.
NOT_INHERITED = (
    *ROLE_VARIABLES,
    *(
        f"{who}_{what}"
        for who in ("TRAINER", "OBSERVER")
        for what in ("EVENTS", "ATTEMPT", "HOLD", "DUMP")
    ),
    "PYTEST_CURRENT_TEST",
)


def to_inherit() -> dict[str, str]:
    """Return this process's environment without the variables that must not reach a task.

    Call it before tests begin: each test sets and removes PYTEST_CURRENT_TEST, and iterating over
    os.environ while another thread does that raises KeyError.
    """
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


@dataclass(frozen=True)
class Needs:
    """What the tasks of a cluster need of the machines that run them."""

    tasks: Sequence[str]
    workers: Sequence[str] = ()  # that train, each with this number of GPUs, if there are enough
    gpus: int = 1
    on_hosts: bool = False  # each task has a host of its own
    on_disk: bool = False  # the cluster has a disk of its own
    alone: str = ""  # a task whose node runs no other, and can be ended


@dataclass(frozen=True)
class Place:
    """Where the tasks of one cluster run."""

    addresses: Mapping[str, str]  # task -> address
    connect: Callable[[str], InitConnection]  # the argument is a Keras flavor
    release: Callable[[], None]  # of the addresses
    gpus: Mapping[str, str] = field(default_factory=dict)  # task -> CUDA_VISIBLE_DEVICES
    watch: PortWatch | None = None


@dataclass
class Engine:
    """Zygotes, one for each environment, and the clusters that they fork."""

    python: str
    flavors: Mapping[str, Mapping[str, str]]  # Keras flavor -> its environment variables
    network: Network
    deadlines: Deadlines
    directory: Path  # the run directory; holds events/ and logs/
    progress: Progress
    session: str
    defaults: Mapping[str, Any] = field(default_factory=dict)  # flags for every trainer
    spawn: str = "fork"
    preload: Sequence[str] = ("tensorflow",)
    workers: int | None = None  # --workers, for topologies that have any
    threads: int | None = None  # in each of TensorFlow's pools; None: TensorFlow's default
    malloc: str = "default"  # a row of MALLOC
    gpus: Sequence[str] = ()
    prefix: str = ""
    inherited: Mapping[str, str] = field(default_factory=to_inherit)
    zygotes: dict[str, Zygote] = field(default_factory=dict)
    restarts: list[str] = field(default_factory=list)  # how each restarted zygote died
    clusters: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    references: SingleFlight = field(
        default_factory=SingleFlight
    )  # reference runs with which other runs are compared
    left: list[str] = field(default_factory=list)  # what `stop` could not end
    stopped: bool = False
    lock: Lock = field(default_factory=Lock)  # several threads run scenarios

    def apart(self, name: str, **changes: Any) -> Engine:
        """Return another engine of the same session with zygotes of its own; the caller stops it.

        Both engines share one counter of clusters, so that no two clusters use the same files.
        """
        fresh: dict[str, Any] = {"zygotes": {}, "lock": Lock()}
        return replace(self, prefix=self.prefix + name, **fresh, **changes)

    def prepare(self) -> None:
        """Check that the machines can run tasks; BadInput says what one lacks."""

    def warm(self, *flavors: str) -> None:
        """Start the zygotes of these flavors, so that they import TensorFlow in the background."""
        for flavor in flavors:
            self._zygote(flavor)

    def import_s(self, flavor: str) -> float:
        """Return the seconds in which the tasks' modules were imported."""
        return self._zygote(flavor).wait_ready(self.deadlines)["import_s"]

    def harness_use(self) -> HarnessUse:
        """Return what the harness itself has used so far, without zygotes and tasks."""
        return HarnessUse.now()

    def _zygote(self, flavor: str) -> Zygote:
        """Return the living zygote of this flavor; start it if needed."""

        def start(**given: Any) -> Zygote:
            logs = self.directory / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            return Zygote.start(
                self.python,
                self.environment(flavor),
                spawn=self.spawn,
                preload=self.preload,
                log=logs / f"zygote-{self.prefix}{flavor}.log",
                **given,
            )

        with self.lock:
            if self.stopped:
                raise HarnessError("the session is over: no new cluster starts")
            return zygote_client.living(self.zygotes, flavor, start, self.restarts, self.deadlines)

    def environment(self, flavor: str) -> dict[str, str]:
        """Return the environment of a task of that flavor: pytest's at startup plus settings."""
        return {
            **self.inherited,
            **backends.LOG_ENVIRONMENT,
            **self.flavors[flavor],
            **(dict.fromkeys(THREADS, str(self.threads)) if self.threads else {}),
            **MALLOC[self.malloc],
            SESSION_VARIABLE: self.session,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(ROOT), self.inherited.get("PYTHONPATH", "")])
            ),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        }

    def activated(self) -> dict[str, str]:
        """Return PATH with the interpreter's directory first, for scripts that call `python`."""
        directories = (os.path.dirname(self.python), self.inherited.get("PATH", os.defpath))
        return {"PATH": os.pathsep.join(directories)}

    def connect(self, flavor: str) -> ClusterInit:
        isolate = self.network.kind == NAMESPACE
        return zygote_client.connect(lambda: self._zygote(flavor), self.deadlines, isolate=isolate)

    @property
    def why_no_node_ends(self) -> str:
        """Return why the harness cannot end the node of a task; "" if it can."""
        return "the tasks run on this machine"

    def check_ends_nodes(self, alone: str) -> None:
        """Raise Unsupported if a task needs a node that can be ended, and there is none."""
        if alone and self.why_no_node_ends:
            raise Unsupported(f"nodes that can be ended need --engine ray: {self.why_no_node_ends}")

    @property
    def node_count(self) -> int:
        """Return how many machines tasks can run on."""
        return 1

    @property
    def gpu_count(self) -> int:
        return len(self.gpus)

    def has_gpus(self, workers: int, each: int = 1) -> bool:
        """Return True if so many workers can have `each` GPUs of their own."""
        return enough(self.gpus, workers, each)

    def place(self, name: str, needs: Needs) -> Place:  # noqa: ARG002 (another engine uses it)
        """Return where the tasks of a new cluster run; Unsupported where that is impossible.

        `name` is unique in the run.
        """
        self.check_ends_nodes(needs.alone)
        addresses, release = self.network.addresses(
            needs.tasks, needs.on_hosts, needs.on_disk, self.session
        )
        gpus = assign_gpus(self.gpus, needs.workers, needs.gpus)
        return Place(addresses, self.connect, release, gpus, self.network.watch(addresses))

    def to_dict(self) -> dict[str, Any]:
        """Return the engine's section of run.json."""
        return {"name": "local"}

    def topology(
        self,
        trainer: Trainer,
        jobs: Sequence[tuple[str, int]] | None = None,
        workers: int | None = None,
    ) -> Topology:
        """Return the trainer's topology, or `jobs`; --workers applies if no number is given."""
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
        alone: str = "",
        directory: Path | None = None,
    ) -> Cluster:
        """Return a cluster that has not started; enter it, then call `start`.

        `jobs` replaces the trainer's topology, `workers` only its number of training workers.
        `name` is its purpose in file names and on the terminal. `flags` are the trainer's, by name
        without dashes: True is a switch, None omits a flag. `on_hosts`: each task gets its own
        virtual host. `on_disk`: a disk of that size for `model_dir`. Both raise Unsupported where
        clusters have no namespaces of their own. `alone`: a task whose node runs no other, and can
        be ended; Unsupported where the engine has no such nodes. `directory`: the scenario's; a
        user's program runs in a new directory below it, so that relative paths of two clusters are
        not the same.
        """
        topology = self.topology(trainer, jobs, workers)
        flavor = keras if keras in self.flavors else next(iter(self.flavors))
        own = {"backend": backend, "devices": trainer.devices}
        given = {**self.defaults, **{k: v for k, v in own.items() if k in trainer.flags}}
        if model_dir:
            given["model-dir"] = model_dir
        numbered = f"{self.prefix}{next(self.clusters):03d}-{name}"
        trained = (topology.tasks, topology.workers, trainer.devices)
        needs = Needs(*trained, on_hosts, bool(on_disk), alone)
        place = self.place(numbered, needs)
        given.update(flags or {})
        working_directory = private_tmp = None
        if trainer.of_user:
            assert directory, "a program of a user needs a directory to run in"
            working_directory = directory / f"work-{numbered}"
            working_directory.mkdir()
            if self.network.kind == NAMESPACE:
                private_tmp = directory / f"tmp-{numbered}"
                private_tmp.mkdir()
                private_tmp.chmod(0o1777)
            given.setdefault("model-dir", working_directory / "model")
            given = {name: value for name, value in given.items() if name in trainer.flags}
            env = {**self.activated(), **(env or {})}
        plan = Plan(
            trainer=trainer,
            topology=topology,
            addresses=place.addresses,
            backend=backend,
            keras=keras,
            flags=given,
            env={**self.environment(flavor), **(env or {})},
            gpus=place.gpus,
            python=self.python,
            events=self.directory / "events" / numbered,
            logs=self.directory / "logs" / numbered,
            label=f"{name} {trainer.name} {backend} {keras}",
            on_hosts=on_hosts,
            on_disk=on_disk,
            spawn=trainer.spawn or self.spawn,
            working_directory=working_directory,
            private_tmp=private_tmp,
        )
        return Cluster(
            plan,
            lambda: place.connect(flavor),
            self.deadlines,
            self.progress,
            place.release,
            place.watch,
        )

    def stop(self) -> None:
        """End all zygotes and their forks, and refuse new clusters."""
        with self.lock:
            self.stopped = True
            zygotes = list(self.zygotes.values())
            self.zygotes.clear()
        for zygote in zygotes:
            zygote.stop(self.deadlines)
