"""State that one pytest process shares among its tests: settings, engine, outcomes.

A run that several tests check happens once for each case; they all share its error, too.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reference_trainers import TRAINERS, Trainer
from suite.harness.cluster.addresses import NAMESPACE, has_netem
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Engine
from suite.harness.core.case import Case
from suite.harness.core.settings import Settings
from suite.harness.core.single_flight import SingleFlight
from suite.harness.core.timestamps import now
from suite.harness.environment.dataset import Dataset
from suite.harness.environment.interpreter import Interpreter
from suite.harness.session.prefetch import ScenarioPrefetcher
from suite.harness.session.timing_lock import TimingLock
from suite.harness.tables.claims import Claims
from suite.harness.tables.expectations import Expectations, Row
from suite.harness.tables.programs import Program

ALL_TESTS = "*"
Scenario = Callable[..., Any]  # called with a Launch; see suite/harness/scenarios


def _temporary(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


@dataclass
class Timing:
    """Start and duration of a scenario, in any thread."""

    name: str
    start: str = field(default_factory=now)
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0
    waited_s: float = 0.0  # part of `took_s` spent on outcomes of other scenarios
    needs: list[Timing] = field(default_factory=list)  # of the scenarios that it requested
    charged: bool = False

    def charge(self) -> float:
        """Return the seconds that are charged to a test that requests the outcome.

        The first test is charged for the scenario and the scenarios that it needs; other tests get
        0. pytest charges the setup of session fixtures in the same way.
        """
        if self.charged:
            return 0.0
        self.charged = True
        return self.took_s - self.waited_s + sum(timing.charge() for timing in self.needs)


@dataclass
class Session:
    """Everything that outlives a test; see the module's docstring."""

    settings: Settings
    interpreter: Interpreter
    engine: Engine
    dataset: Dataset
    claims: Claims
    expectations: Expectations
    programs: tuple[Program, ...] = ()  # of the user, from --trainer
    new_directory: Callable[[str], Path] = _temporary  # argument: the name of its purpose
    ahead: ScenarioPrefetcher = field(init=False)
    timing_lock: TimingLock = field(init=False)
    outcomes: SingleFlight = field(default_factory=SingleFlight)
    # By case id and function of the scenario or test, since two modules may share a name: its
    # timing, and its clusters' directories of event files, also after a failure.
    timings: dict[tuple[str, Scenario], Timing] = field(default_factory=dict)
    histories: dict[tuple[str, Scenario | None], list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self.ahead = ScenarioPrefetcher(self.settings.at_once)
        self.timing_lock = TimingLock(self.engine.deadlines.turn_s)

    @property
    def rows(self) -> tuple[Trainer, ...]:
        """Return the trainers that may be examined: those of the suite, and programs of users."""
        return (*TRAINERS, *(program.row for program in self.programs))

    def has_gpus(self, case: Case) -> bool:
        """Return True if each worker of the case's trainer gets one GPU for each replica."""
        workers = len(self.engine.topology(case.trainer).workers)
        return self.engine.has_gpus(workers, case.trainer.devices)

    def expectation(self, case: Case, test: str, scene: str = "") -> Row | None:
        """Return the row of expectations.toml that applies to this test here, if there is one."""
        return self.expectations.match(
            case.trainer.like or case.trainer.name,
            test,
            case.backend,
            self.interpreter.tensorflow,
            self.interpreter.label(case.keras),
            scene=scene,
            protobuf=self.interpreter.protobuf,
            gpu=self.has_gpus(case),
            real_mnist=self.dataset.real_mnist,
            namespaces=self.engine.network.kind == NAMESPACE,
            nodes=not self.engine.why_no_node_ends,
            netem=has_netem,
        )

    def outcome(self, case: Case, scene: Scenario) -> Any:
        """Return the outcome of `scene` for this case; run it once, raise its error every time."""

        def run() -> Any:
            timing = self.timings[case.id, scene] = Timing(scene.__name__)
            directory = self.new_directory(scene.__name__)
            try:
                return scene(Launch(self, case, directory, scene.__name__, scene, timing))
            finally:
                timing.took_s = time.monotonic() - timing.began_s

        return self.outcomes.get((case.id, scene), run)


SESSION = pytest.StashKey[Session]()
# Tests that could not examine a user's program: test, trainer and reason, by test and trainer.
NOT_EXAMINED = pytest.StashKey[list[dict[str, str]]]()


@dataclass(frozen=True)
class Launch:
    """`launch` for one scenario or test: the engine's, with case, directory and name filled in."""

    session: Session
    case: Case
    directory: Path  # its own, for model directories
    name: str  # for file names
    function: Scenario | None = None  # the scenario or test, under which its clusters are listed
    timing: Timing | None = None  # of the scenario

    @property
    def engine(self) -> Engine:
        return self.session.engine

    def __call__(self, trainer: Any = None, **how: Any) -> Cluster:
        """Return a cluster of `trainer` (default: the case's); see `Engine.launch`."""
        how.setdefault("backend", self.case.backend)
        how.setdefault("keras", self.case.keras)
        how.setdefault("directory", self.directory)
        cluster = self.engine.launch(trainer or self.case.trainer, name=self.name, **how)
        self.session.histories[self.case.id, self.function].append(cluster.plan.events.name)
        return cluster

    def outcome(self, scene: Scenario) -> Any:
        """Return the outcome of another scenario for this case."""
        began_s = time.monotonic()
        try:
            return self.session.outcome(self.case, scene)
        finally:
            needed = self.session.timings.get((self.case.id, scene))
            if self.timing and needed:
                self.timing.waited_s += time.monotonic() - began_s
                self.timing.needs.append(needed)
