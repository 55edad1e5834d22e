"""Run what a document shows as printed, and read the quantities that it prints.

A setup is one run that a document shows. Neither its initial weights nor the order of its data are
known, so a printed figure is one draw from a distribution: see metrics/published_ranges.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference_trainers import BY_NAME
from suite.harness.core.errors import Unsupported
from suite.harness.core.history import Run
from suite.harness.environment.dataset import Dataset
from suite.harness.scenarios.base import complete, part_of_data, program, trained
from suite.harness.session.session import Launch

# Not a seed of the runs in published_seeds.csv, and fixed, so that reruns repeat the same draw.
SEED = 1_000


@dataclass(frozen=True)
class Setup:
    """One run that a document shows, without additions."""

    name: str
    trainer: str
    read: Callable[[Run], dict[str, float]]  # reads the document's quantities, by name
    flags: Mapping[str, Any] = field(default_factory=dict)
    jobs: Sequence[tuple[str, int]] | None = None  # default: the trainer's own
    program: str = ""  # in suite/programs, instead of the trainer's
    until: Callable[..., Run] = trained  # waits for the end of the run
    examples: tuple[int, int] | None = None  # only the first of the data, to train and to test
    long: bool = False  # minutes: left out of a run unless requested


def by_epoch(*names: str) -> Callable[[Run], dict[str, float]]:
    """Return a function that reads these metrics of every epoch, as worker 0 reported them."""

    def read(run: Run) -> dict[str, float]:
        epochs = run.of("epoch", run.drivers[0])
        return {f"{n} of epoch {e['epoch']}": e["metrics"][n] for e in epochs for n in names}

    return read


def last_epoch(run: Run) -> dict[str, float]:
    """Return the metrics of the last epoch, and those of the evaluation after it."""
    last = run.of("epoch", run.drivers[0])[-1]
    after = run.of("evaluated", run.drivers[0])[-1]["metrics"]
    found = {f"{name} of epoch {last['epoch']}": last["metrics"][name] for name in METRICS}
    return {**found, **{f"evaluation {name}": after[name] for name in METRICS}}


def first_and_last_step(run: Run) -> dict[str, float]:
    """Return the loss over all replicas at the first and the last step, and the evaluation's."""
    steps = {worker: run.of("step", worker) for worker in run.workers}
    n = len(steps[run.workers[0]])
    losses = {k: [made[k - 1]["loss"] for made in steps.values()] for k in (1, n)}
    found = {f"loss of step {k}": sum(values) / len(values) for k, values in losses.items()}
    return {**found, "evaluation loss": run.of("evaluated")[-1]["metrics"]["loss"]}


METRICS = ("loss", "accuracy")
SHORT = {"epochs": 3, "steps-per-epoch": 70, "batch-size": 64}  # per worker
SETUPS = (
    Setup("single", "single_process", by_epoch(*METRICS), SHORT),
    # A new model, saved and loaded, or restored, and then trained.
    Setup(
        "loaded", "single_process", by_epoch("loss"), {**SHORT, "epochs": 2, "steps-per-epoch": 20}
    ),
    Setup("two-workers", "keras_multi_worker_mirrored", by_epoch(*METRICS), SHORT),
    Setup(
        "mirrored",
        "keras_mirrored",
        last_epoch,
        {"epochs": 12, "steps-per-epoch": 938, "batch-size": 64, "devices": 1, "evaluate": True},
        until=complete,
        long=True,
    ),
    Setup(
        "estimator",
        "estimator_multi_worker_mirrored",
        first_and_last_step,
        # The document's four replicas are GPUs of one process, which evaluates by itself.
        {"epochs": 1, "steps-per-epoch": 234, "batch-size": 64, "learning-rate": 1e-4},
        jobs=(("chief", 1), ("worker", 3), ("evaluator", 1)),
        until=complete,
    ),
    Setup(
        "dtensor-as-published",
        "dtensor_data_parallel",
        by_epoch(*METRICS, "val_loss", "val_accuracy"),
        {"devices": 8},
        program="dtensor_as_published",
        until=complete,
    ),
    # As above, but as intended by the document's text and its Adam. The document printed no such
    # figures.
    Setup(
        "dtensor",
        "dtensor_data_parallel",
        by_epoch(*METRICS, "val_loss", "val_accuracy"),
        {
            "epochs": 3,
            "steps-per-epoch": 39,
            "batch-size": 16,
            "devices": 8,
            "learning-rate": 1e-3,
            "optimizer": "adam",
            "evaluate": True,
        },
        examples=(5000, 5000),
    ),
)
BY_SETUP = {setup.name: setup for setup in SETUPS}


def run_of(launch: Launch, setup: Setup, **flags: object) -> Run:
    """Return the document's run; raise Unsupported if the data are not real MNIST."""
    need_real_mnist(launch.session.dataset)
    trainer = BY_NAME[setup.trainer]
    how: dict[str, Any] = {"flags": {**setup.flags, **flags}}
    how["jobs"] = trainer.jobs if setup.jobs is None else setup.jobs  # regardless of --workers
    if setup.examples:
        how["flags"]["data"] = part_of_data(launch, *setup.examples)
    if setup.program:
        return setup.until(launch, program(launch, setup.program, flags=("devices",)), **how)
    if setup.until is complete:  # a complete run also saves, as in the document
        how["model_dir"] = launch.directory / "model"
    return setup.until(launch, **how)


def need_real_mnist(dataset: Dataset) -> None:
    """Raise Unsupported if the documents' figures do not apply to the data."""
    if not dataset.real_mnist:
        raise Unsupported(f"the data are {dataset.name}, not real MNIST")


@dataclass(frozen=True)
class PublishedRun:
    """A run of a setup, repeated."""

    setup: Setup
    run: Run


def scene(setup: Setup) -> Callable[[Launch], PublishedRun]:
    """Return the scenario of a setup, which applies to one trainer only."""

    def run(launch: Launch) -> PublishedRun:
        return PublishedRun(setup, run_of(launch, setup, seed=SEED))

    run.__name__ = setup.name
    run.means = lambda case: case.trainer.name == setup.trainer  # type: ignore[attr-defined]
    return run
