"""Repeat the runs that the documents print figures of, with many seeds.

`python -m suite.published --data mnist.npz --seeds 20 [--setup NAME]` writes one line for each seed
and quantity to published_seeds.csv. It keeps the lines of setups that are not named or that this
TensorFlow cannot run. It needs real MNIST.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from reference_trainers import BY_NAME
from suite.harness.core.case import Case
from suite.harness.core.errors import BadInput, Unsupported
from suite.harness.core.settings import Settings
from suite.harness.core.versions import NO_KERAS
from suite.harness.metrics.published_ranges import SEEDS, Draw, draws
from suite.harness.pytest_plugin.progress import Progress
from suite.harness.scenarios.published_runs import BY_SETUP, Setup, run_of
from suite.harness.session.session import Launch, Session
from suite.harness.session.setup import build, settle


def campaign(session: Session, setups: Sequence[Setup], seeds: int) -> Iterator[Draw]:
    """Yield all quantities of all runs, seed by seed; setups that cannot run here yield nothing."""
    flavor = next(iter(session.engine.flavors))
    for setup in setups:
        row = BY_NAME[setup.trainer]
        case = Case(row, row.backends[0], flavor if row.keras else NO_KERAS)
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


def write(path: Path, new_draws: Iterable[Draw]) -> None:
    """Replace the draws of the same setups, and keep all others."""
    new = tuple(new_draws)
    names = {draw.setup for draw in new}
    kept = [draw for draw in draws(path) if draw.setup not in names] if path.exists() else []
    order = list(BY_SETUP)
    rows = sorted([*kept, *new], key=lambda draw: (order.index(draw.setup), draw.seed))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(Draw)])
        writer.writerows(astuple(draw) for draw in rows)


def printed(new_draws: Iterable[Draw]) -> Iterator[Draw]:
    for draw in new_draws:
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
        flavors = tuple(args.keras)
        settings = Settings(
            keras=flavors, data=args.data, run_dir=directory, deadline_scale=3.0, at_once=1
        )
        try:
            session = build(settle(settings), Progress())
            if not session.dataset.real_mnist:
                raise BadInput(f"--data {session.dataset.path}: is not real MNIST")
        except BadInput as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
        try:
            setups = [BY_SETUP[name] for name in args.setup or BY_SETUP]
            write(args.output, printed(campaign(session, setups, args.seeds)))
        finally:
            session.engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
