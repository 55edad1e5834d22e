"""The documents' printed figures, and the range of the suite's own runs.

A setup is one run that a document shows. A figure is what the document printed of that run. Neither
initial weights nor the order of the data are known, so a figure is one draw from a distribution.
Own draws, from seeds, are in published_seeds.csv, one line for each seed and quantity.

`python -m suite.published --data mnist.npz --seeds 20 [--setup NAME]` repeats the draws. It keeps
the lines of setups that are not named or that this TensorFlow cannot run. It needs real MNIST.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from scipy import stats

from reference_trainers import BY_NAME
from suite.harness.core.case import Case
from suite.harness.core.errors import BadInput, Unsupported
from suite.harness.core.history import Run
from suite.harness.core.settings import Settings
from suite.harness.core.versions import NO_KERAS
from suite.harness.environment.dataset import Dataset
from suite.harness.pytest_plugin.progress import Progress
from suite.harness.scenarios import small_programs
from suite.harness.scenarios.base import complete, part_of_data, trained
from suite.harness.session import setup as wiring
from suite.harness.session.session import Launch, Session
from suite.harness.tables.toml_schema import read_toml

HERE = Path(__file__).parent / "conformance"
FIGURES, SEEDS = HERE / "published_figures.toml", HERE / "published_seeds.csv"
# Not a seed of the runs in SEEDS, and fixed, so that reruns repeat the same draw.
SEED = 1_000
# For runs equivalent to the suite's own, one figure in this many falls outside by chance.
ONE_IN = 100


# --- set-ups -------------------------------------------------------------------------------------


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
        return setup.until(
            launch, small_programs.program(launch, setup.program, flags=("devices",)), **how
        )
    if setup.until is complete:  # a complete run also saves, as in the document
        how["model_dir"] = launch.directory / "model"
    return setup.until(launch, **how)


def need_real_mnist(dataset: Dataset) -> None:
    """Raise Unsupported if the documents' figures do not apply to the data."""
    if not dataset.real_mnist:
        raise Unsupported(f"the data are {dataset.name}, not real MNIST")


@dataclass(frozen=True)
class Drawn:
    """A run of a setup, repeated."""

    setup: Setup
    run: Run


def scene(setup: Setup) -> Callable[[Launch], Drawn]:
    """Return the scenario of a setup, which applies to one trainer only."""

    def run(launch: Launch) -> Drawn:
        return Drawn(setup, run_of(launch, setup, seed=SEED))

    run.__name__ = setup.name
    run.means = lambda case: case.trainer.name == setup.trainer  # type: ignore[attr-defined]
    return run


# --- figures and ranges --------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """The figures that a document prints of one run of a setup."""

    name: str
    setup: str
    url: str
    values: Mapping[str, float]  # quantity -> printed value


@dataclass(frozen=True)
class Draw:
    """One quantity of one of the suite's own runs; a line of published_seeds.csv."""

    setup: str
    keras: str
    tensorflow: str
    seed: int
    quantity: str
    value: float


@dataclass(frozen=True)
class Range:
    """The allowed range of a quantity, including both ends."""

    quantity: str
    low: float
    high: float


def figures(path: Path = FIGURES) -> tuple[Figure, ...]:
    return tuple(Figure(**row) for row in read_toml(path)["figure"])


def of_setup(name: str) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures() if figure.setup == name)


def draws(path: Path = SEEDS) -> tuple[Draw, ...]:
    kinds = {f.name: {"int": int, "float": float}.get(str(f.type), str) for f in fields(Draw)}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(Draw(**{k: kinds[k](v) for k, v in row.items()}) for row in rows)


def seen(setup: str, own: Iterable[Draw]) -> Iterator[Range]:
    """Yield for each quantity the range from the minimum to the maximum of the own runs."""
    for quantity, values in _samples(setup, own):
        yield Range(quantity, min(values), max(values))


def predicted(setup: str, own: Iterable[Draw]) -> Iterator[Range]:
    """Yield for each quantity the two-sided prediction interval of one more own run.

    It uses Student's t, because the spread is estimated from these few runs as well. Raise
    ValueError for fewer than three seeds.
    """
    for quantity, values in _samples(setup, own):
        if len(values) < 3:
            raise ValueError(f"{setup}: {len(values)} seeds are too few for a range")
        mean, spread = stats.tmean(values), stats.tstd(values)
        wide = stats.t.ppf(1 - 0.5 / ONE_IN, len(values) - 1) * spread
        wide *= math.sqrt(1 + 1 / len(values))
        yield Range(quantity, float(mean - wide), float(mean + wide))


def _samples(setup: str, own: Iterable[Draw]) -> Iterator[tuple[str, list[float]]]:
    found: dict[str, list[float]] = {}
    for draw in own:
        if draw.setup == setup:
            found.setdefault(draw.quantity, []).append(draw.value)
    yield from found.items()


def outside(values: Mapping[str, float], allowed: Iterable[Range]) -> list[str]:
    """Return a sentence for each value outside its range; a range may have no value."""
    return [
        f"{r.quantity}: {values[r.quantity]:.4f} is not in {r.low:.4f} to {r.high:.4f}"
        for r in allowed
        if r.quantity in values and not r.low <= values[r.quantity] <= r.high
    ]


# --- a campaign of seeds -------------------------------------------------------------------------


def campaign(session: Session, setups: Sequence[Setup], seeds: int) -> Iterator[Draw]:
    """Yield all quantities of all runs, seed by seed; setups that cannot run here yield nothing."""
    flavour = next(iter(session.engine.flavours))
    for setup in setups:
        row = BY_NAME[setup.trainer]
        case = Case(row, row.backends[0], flavour if row.keras else NO_KERAS)
        label, version = session.interpreter.label(case.keras), session.interpreter.tensorflow
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory() as directory:
                launch = Launch(session, case, Path(directory), setup.name)
                try:
                    found = setup.read(run_of(launch, setup, seed=seed))
                except Unsupported as error:
                    print(f"{setup.name}: {error}", file=sys.stderr)
                    break
            for quantity, value in found.items():
                yield Draw(setup.name, label, version, seed, quantity, round(value, 4))


def write(path: Path, drawn: Iterable[Draw]) -> None:
    """Replace the draws of the same setups, and keep all others."""
    new = tuple(drawn)
    names = {draw.setup for draw in new}
    kept = [draw for draw in draws(path) if draw.setup not in names] if path.exists() else []
    order = list(BY_SETUP)
    rows = sorted([*kept, *new], key=lambda draw: (order.index(draw.setup), draw.seed))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(Draw)])
        writer.writerows(astuple(draw) for draw in rows)


def told(drawn: Iterable[Draw]) -> Iterator[Draw]:
    for draw in drawn:
        print(*astuple(draw), flush=True)
        yield draw


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m suite.published", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="(default: 20)")
    parser.add_argument(
        "--setup", action="append", choices=BY_SETUP, help="only this (repeatable; default: all)"
    )
    parser.add_argument("--data", metavar="NPZ", help="real MNIST (default: as the suite finds it)")
    parser.add_argument(
        "--keras", action="append", default=[], help="(default: the first there is)"
    )
    parser.add_argument("--output", type=Path, default=SEEDS, help=f"(default: {SEEDS.name})")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        flavours = tuple(args.keras)
        settings = Settings(
            keras=flavours, data=args.data, run_dir=directory, deadline_scale=3.0, at_once=1
        )
        try:
            session = wiring.build(wiring.settle(settings), Progress())
            if not session.dataset.real_mnist:
                raise BadInput(f"--data {session.dataset.path}: is not real MNIST")
        except BadInput as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
        try:
            setups = [BY_SETUP[name] for name in args.setup or BY_SETUP]
            write(args.output, told(campaign(session, setups, args.seeds)))
        finally:
            session.engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
