"""The documents' printed figures, and the range in which runs of our own fall.

`python -m suite.published --data mnist.npz --seeds 20` draws it anew: each seed is one run of each
trainer that has figures, and one line an epoch in published_seeds.csv. Needs real MNIST.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from scipy import stats

from reference_trainers import BY_NAME
from suite.harness import wiring
from suite.harness.cases import Case
from suite.harness.data import Dataset
from suite.harness.errors import BadInput, Unsupported
from suite.harness.options import Settings
from suite.harness.progress import Progress
from suite.harness.rows import read_toml
from suite.harness.run import Run
from suite.harness.session import Launch as Clusters
from suite.harness.session import Session
from suite.harness.staging import Launch, trained

HERE = Path(__file__).parent / "conformance"
FIGURES, SEEDS = HERE / "published_figures.toml", HERE / "published_seeds.csv"
METRICS = ("loss", "accuracy")
BATCH = 64  # of one worker, in the document
# Of none of the runs in SEEDS, and always the same: it is one draw, not a lottery.
SEED = 1_000
# Of runs that are no different from ours, one figure in so many falls outside by chance.
ONE_IN = 100


@dataclass(frozen=True)
class Figure:
    """What a document prints of one run: a value of each metric for each epoch."""

    name: str
    trainer: str
    url: str
    epochs: int
    steps: int  # per epoch
    loss: Sequence[float]
    accuracy: Sequence[float]


@dataclass(frozen=True)
class Draw:
    """One epoch of one run of our own; a line of published_seeds.csv."""

    trainer: str
    keras: str
    tensorflow: str
    seed: int
    epoch: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Range:
    """Where a figure may lie; both ends belong to it."""

    metric: str
    epoch: int
    low: float
    high: float


def figures(path: Path = FIGURES) -> tuple[Figure, ...]:
    return tuple(Figure(**row) for row in read_toml(path)["figure"])


def of_trainer(name: str) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures() if figure.trainer == name)


def draws(path: Path = SEEDS) -> tuple[Draw, ...]:
    kinds = {f.name: {"int": int, "float": float}.get(str(f.type), str) for f in fields(Draw)}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(Draw(**{k: kinds[k](v) for k, v in row.items()}) for row in rows)


def seen(trainer: str, own: Iterable[Draw]) -> Iterator[Range]:
    """For each metric and epoch from the least to the most that a run of ours gave."""
    for metric, epoch, values in _samples(trainer, own):
        yield Range(metric, epoch, min(values), max(values))


def predicted(trainer: str, own: Iterable[Draw]) -> Iterator[Range]:
    """For each metric and epoch the two-sided prediction interval of one more run like ours.

    Student's, since the spread is estimated from these few runs as well. ValueError for fewer than
    three seeds.
    """
    for metric, epoch, values in _samples(trainer, own):
        if len(values) < 3:
            raise ValueError(f"{trainer}: {len(values)} seeds are too few for a range")
        mean, spread = stats.tmean(values), stats.tstd(values)
        wide = stats.t.ppf(1 - 0.5 / ONE_IN, len(values) - 1) * spread
        wide *= math.sqrt(1 + 1 / len(values))
        yield Range(metric, epoch, float(mean - wide), float(mean + wide))


def _samples(trainer: str, own: Iterable[Draw]) -> Iterator[tuple[str, int, list[float]]]:
    by_epoch: dict[int, list[Draw]] = {}
    for draw in own:
        if draw.trainer == trainer:
            by_epoch.setdefault(draw.epoch, []).append(draw)
    for epoch, found in sorted(by_epoch.items()):
        for metric in METRICS:
            yield metric, epoch, [getattr(draw, metric) for draw in found]


def outside(figure: Figure, allowed: Iterable[Range]) -> list[str]:
    """The figures that a range does not hold, each as a sentence; both ends are told."""
    found = []
    for r in allowed:
        value = getattr(figure, r.metric)[r.epoch - 1]
        if not r.low <= value <= r.high:
            found.append(
                f"{r.metric} {value:.4f} of epoch {r.epoch} is not in {r.low:.4f} to {r.high:.4f}"
            )
    return found


def reproduce(launch: Launch, figure: Figure, **flags: object) -> Run:
    """The document's run, with nothing of ours added; two workers, as it has them."""
    trainer = BY_NAME[figure.trainer]
    work = {"epochs": figure.epochs, "steps-per-epoch": figure.steps, "batch-size": BATCH}
    return trained(launch, jobs=trainer.jobs, flags={**work, **flags})


def reproduced(launch: Clusters) -> Run:
    """The first of the trainer's figures, once more; Unsupported where data are not real MNIST."""
    need_real_mnist(launch.session.dataset)
    return reproduce(launch, of_trainer(launch.case.trainer.name)[0], seed=SEED)


def need_real_mnist(dataset: Dataset) -> None:
    """Raise Unsupported where the documents' figures say nothing about the data."""
    if not dataset.real_mnist:
        raise Unsupported(f"the data are {dataset.name}, not real MNIST")


def as_figure(run: Run, figure: Figure) -> Figure:
    """What the run reports in place of what the document prints."""
    epochs = run.of("epoch", run.workers[0])
    metrics = {name: [e["metrics"][name] for e in epochs] for name in METRICS}
    return Figure(**{**asdict(figure), **metrics})


def campaign(session: Session, seeds: int) -> Iterator[Draw]:
    """All epochs of all runs, seed by seed."""
    first = {figure.trainer: figure for figure in reversed(figures())}
    flavour = next(iter(session.engine.flavours))
    for seed in range(1, seeds + 1):
        for name, figure in first.items():
            with tempfile.TemporaryDirectory() as directory:
                case = Case(BY_NAME[name], BY_NAME[name].backends[0], flavour)
                launch = Clusters(session, case, Path(directory), "published")
                own = as_figure(reproduce(launch, figure, seed=seed), figure)
            label, version = session.interpreter.label(flavour), session.interpreter.tensorflow
            for epoch in range(1, figure.epochs + 1):
                values = (round(getattr(own, metric)[epoch - 1], 4) for metric in METRICS)
                yield Draw(name, label, version, seed, epoch, *values)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m suite.published", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="(default: 20)")
    parser.add_argument("--data", metavar="NPZ", help="real MNIST (default: as the suite finds it)")
    parser.add_argument("--keras", default="tf_keras", help="flavour (default: tf_keras)")
    parser.add_argument("--output", type=Path, default=SEEDS, help=f"(default: {SEEDS.name})")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings((), (), (args.keras,), None, args.data, directory, None, "fork", 1.0, 0)
        try:
            session = wiring.build(wiring.settle(settings), Progress(None))
            if not session.dataset.real_mnist:
                raise BadInput(f"--data {session.dataset.path}: is not real MNIST")
        except BadInput as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
        try:
            with args.output.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow([f.name for f in fields(Draw)])
                for draw in campaign(session, args.seeds):
                    writer.writerow(astuple(draw))
                    print(*astuple(draw), flush=True)
        finally:
            session.engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
