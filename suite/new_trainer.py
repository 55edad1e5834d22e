"""The command `new`: a trainer to begin with in one file, and its description.

Exit codes: 0 written; 2 invalid arguments, nothing written.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from reference_trainers import BY_NAME, Trainer
from suite.harness.core.errors import BadInput
from suite.harness.tables.programs import APPROACHES

DONE, BAD_USAGE = 0, 2
CODES = {
    DONE: "the files were written",
    BAD_USAGE: "invalid arguments, with one line on stderr; nothing was written",
}
# (approach, whether it uses Model.fit) -> the reference trainer to begin with, in one file.
TRAINERS = {
    (approach.name, row.fit): row
    for approach in APPROACHES
    for row in (BY_NAME[approach.loop], BY_NAME[approach.fit or approach.loop])
    if row.plain
}
REPORTS = "training_reports.py"
# Flags of every such trainer that the suite sets.
FLAGS = ("model-dir", "data", "epochs", "steps-per-epoch", "batch-size", "learning-rate", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="FILE.py", help="the trainer to write")
    parser.add_argument(
        "--approach",
        required=True,
        choices=list(dict.fromkeys(approach for approach, _ in TRAINERS)),
        help="how it trains: mwms (several workers), mirrored (several devices), single, or ps2 "
        "(parameter servers)",
    )
    parser.add_argument(
        "--fit", action="store_true", help="train with Keras Model.fit, not in a loop of its own"
    )


def run(options: argparse.Namespace) -> int:
    """Write the trainer, what it imports and its description; say how to run them."""
    path: Path = options.path
    files = contents(path, options.approach, options.fit)
    present = [str(file) for file in files if file.exists()]
    if present:
        raise BadInput(f"new {path}: {', '.join(present)} exists already; choose another name")
    written: list[Path] = []
    try:
        for file, text in files.items():
            file.write_text(text)
            written.append(file)
    except OSError as error:
        for file in written:
            file.unlink()
        raise BadInput(f"new {path}: {error.filename}: {error.strerror}") from error
    print(f"Wrote {', '.join(map(str, files))}.")
    print(f"Train alone: python {path} --help")
    print(f"Examine it: pytest suite/ --trainer {path.with_suffix('.toml')}")
    return DONE


def contents(path: Path, approach: str, fit: bool) -> Mapping[Path, str]:
    """Return the text of each file to write. Raise BadInput for a path that cannot be written."""
    if path.suffix != ".py":
        raise BadInput(f"new {path}: give the name of a Python file, such as my_train.py")
    if not path.parent.is_dir():
        raise BadInput(f"new {path}: there is no directory {path.parent}")
    row = TRAINERS.get((approach, fit))
    if row is None:
        raise BadInput(f"new {path}: {approach} trains with Model.fit; add --fit")
    source = Path(row.program)
    text = source.read_text()
    reports, own = source.with_name(REPORTS).read_text(), path.with_name(REPORTS)
    files = {
        path: text.replace(source.name, path.name),
        path.with_suffix(".toml"): description(path.name, row),
    }
    shared = own.exists() and own.read_text() == reports  # with another trainer
    if own.stem in text and not shared:
        files[own] = reports
    return files


def description(program: str, row: Trainer) -> str:
    """Return a TOML file that says how the suite sets the length and the directory of a run."""
    names = [*FLAGS, "backend"] if "backend" in row.flags else FLAGS
    args = "".join(f'    "--{name}={{{name.replace("-", "_")}}}",\n' for name in names)
    deterministic = str(row.synchronous).lower()
    return f'program = "{program}"\nargs = [\n{args}]\ndeterministic = {deterministic}\n'
