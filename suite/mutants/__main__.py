"""Examine the mutants of the catalog, and print the score.

Exit codes: 0 all mutants that are not equivalent were found; 1 a mutant was missed, or was not run;
2 invalid input.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from reports.core.table import Column, Row, Table
from reports.render import terminal
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import version_in
from suite.mutants import catalog, running

BAD_INPUT = 2
COLUMNS = (
    Column("file"),
    Column("mistake"),
    Column("outcome"),
    Column("by"),
    Column("seconds", right=True),
)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m suite.mutants", description=__doc__)
    top.add_argument("directory", type=Path, metavar="DIRECTORY", nargs="?", help="of results, new")
    top.add_argument(
        "--show", type=Path, metavar="FILE", help="print the results.jsonl of an earlier run"
    )
    top.add_argument(
        "--kind",
        choices=catalog.KINDS,
        action="append",
        help="machinery needs no TensorFlow; repeatable; default: both",
    )
    top.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this one; repeatable"
    )
    top.add_argument(
        "--clean", action="store_true", help="run the tests of the rows without a mistake instead"
    )
    top.add_argument("--data", type=Path, metavar="NPZ", help="images as Keras' mnist.npz")
    top.add_argument("--keras", metavar="KERAS", help="only this Keras flavor")
    return top


def chosen(kinds: Sequence[str], names: Sequence[str]) -> tuple[catalog.Mutant, ...]:
    """Return the rows of these kinds and names; raise BadInput for an unknown name."""
    rows = {row.name: row for row in catalog.load(kinds)}
    if unknown := [name for name in names if name not in rows]:
        raise BadInput(f"no mutant {unknown[0]!r}; known: {', '.join(rows)}")
    return tuple(rows[name] for name in names or rows)


def for_this_tensorflow(rows: Sequence[catalog.Mutant]) -> tuple[catalog.Mutant, ...]:
    """Return the rows that the installed TensorFlow can run; raise BadInput if there are none."""
    if not any(row.kind == catalog.TRAINERS for row in rows):
        return tuple(rows)
    try:
        version = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError as error:
        raise BadInput(
            "TensorFlow is not installed: examine --kind machinery, or install it"
        ) from error
    found = tuple(row for row in rows if not row.tensorflow or version_in(version, row.tensorflow))
    if not found:
        raise BadInput(f"no chosen mutant is for TensorFlow {version}")
    return found


def examine(options: argparse.Namespace) -> int:
    rows = chosen(options.kind or catalog.KINDS, options.only)
    if options.show:
        found = running.recorded(options.show)
        rows = tuple(row for row in rows if row.name in found)
        return report(rows, [found[row.name] for row in rows])
    if options.directory is None:
        raise BadInput("name a new DIRECTORY for the results, or --show FILE")
    directory = options.directory.resolve()
    if directory.exists():
        raise BadInput(f"{directory}: exists; name a new directory")
    rows = for_this_tensorflow(rows)
    own = ["--data", str(options.data.resolve())] if options.data else []
    own += ["--keras", options.keras] if options.keras else []
    if options.clean:
        lines = running.clean_failures(rows, directory, own)
        print("\n".join(lines or ["All tests of the rows pass without a mistake."]))
        return 1 if lines else 0
    results = []
    for result in running.run(rows, directory, own):
        results.append(result)
        print(f"{result.name}: {result.outcome} {result.reason}".rstrip(), file=sys.stderr)
    return report(rows, results)


def report(rows: Sequence[catalog.Mutant], results: Sequence[running.Result]) -> int:
    """Print the table and the score; return the exit code."""
    terminal.one_table(table(rows, results), Console())
    print(score(rows, results))
    return 0 if all(r.outcome in (running.FOUND, running.EQUIVALENT) for r in results) else 1


def table(rows: Sequence[catalog.Mutant], results: Sequence[running.Result]) -> Table:
    lines = tuple(
        Row(row.name, (row.file, row.mistake, r.outcome, ", ".join(r.by), f"{r.seconds:.0f}"))
        for row, r in zip(rows, results, strict=True)
    )
    return Table("", COLUMNS, lines, "by: the tests of the row that fail.")


def score(rows: Sequence[catalog.Mutant], results: Sequence[running.Result]) -> str:
    """Return one line for each kind: how many mutants were found, of those not equivalent."""
    lines = []
    for kind in catalog.KINDS:
        own = [r for row, r in zip(rows, results, strict=True) if row.kind == kind]
        counts = Counter(result.outcome for result in own)
        if own:
            several = len(own) - counts[running.EQUIVALENT]
            others = (running.EQUIVALENT, running.MISSED, running.NOT_RUN)
            rest = ", ".join(f"{counts[name]} {name}" for name in others)
            lines.append(f"{kind}: {counts[running.FOUND]} of {several} found ({rest})")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; print BadInput and OSError as one line."""
    options = parser().parse_args(arguments)
    try:
        return examine(options)
    except (BadInput, OSError) as error:
        sys.stderr.write(f"python -m suite.mutants: {error}\n")
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
