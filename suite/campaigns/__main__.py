"""Pack run directories into a campaign, unpack them, list campaigns, and try the gate on one.

Exit codes: 0 done; 1 the trials found false alarms or too few slowdowns; 2 invalid input.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from reports.compare import run_drift, run_groups
from reports.core.table import Column, Row, Table
from reports.render import markdown, terminal
from reports.rundir.frame import BadInput
from reports.stats import run_levels
from suite.campaigns import gate_trials, parquet_file

BAD_INPUT = 2
EVIDENCE = Path(__file__).resolve().parents[2] / "docs" / "evidence"
COLUMNS = (
    Column("runs", right=True),
    Column("processor"),
    Column("TensorFlow"),
    Column("Python"),
    Column("first start (UTC)"),
    Column("last end (UTC)"),
    Column("size, KiB", right=True),
)
NOTE = "All cells but the size are from the run.json of the runs."


def pack(options: argparse.Namespace) -> int:
    parquet_file.pack(options.file, options.run_dirs)
    return 0


def unpack(options: argparse.Namespace) -> int:
    for directory in parquet_file.unpack(options.file, options.directory, options.runs):
        print(directory)
    return 0


def catalog(options: argparse.Namespace) -> int:
    """Print one line for each campaign, as in docs/evidence/README.md."""
    files = options.files or sorted(EVIDENCE.glob("*.parquet"))
    rows = tuple(Row(path.stem, _cells(path)) for path in files)
    sys.stdout.write(markdown.one_table(Table("", COLUMNS, rows, NOTE), titled=False))
    return 0


def _cells(path: Path) -> tuple[str, ...]:
    found = parquet_file.infos(path)
    return (
        str(len(found)),
        _distinct(str(info["machine"].get("cpu")) for info in found),
        _distinct(info["versions"]["tensorflow"] for info in found),
        _distinct(info["versions"]["python"] for info in found),
        min(info["start"] for info in found)[:16].replace("T", " "),
        max(info["end"] for info in found)[:16].replace("T", " "),
        f"{path.stat().st_size / 1024:.0f}",
    )


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def drift(options: argparse.Namespace) -> int:
    """Print the standard deviation of a run's level, by unit, as `compare` takes it from BASE."""
    side = run_groups.combine(parquet_file.load(options.file, options.runs))
    found = run_drift.estimate(side)
    if not found.by_unit:
        raise BadInput(f"{options.file}: {run_levels.RUNS_ENOUGH} or more runs are needed")
    print(f"Drift {found.source}")
    for unit, pooled in found.by_unit.items():
        own = [
            drift for key, drift in found.by_series.items() if side.series[key].key["unit"] == unit
        ]
        low, high = _percent(min(own)), _percent(max(own))
        print(f"{unit}: {_percent(pooled)} over {len(own)} series, {low} to {high} by series")
    return 0


def _percent(log: float) -> str:
    return f"{100 * math.expm1(log):.2g} %"


def trials(options: argparse.Namespace) -> int:
    """Run trials of the gate on recorded noise; return 1 for false alarms or too few detections."""
    found = gate_trials.read_comparisons(parquet_file.load(options.file, options.runs))
    done = gate_trials.run_trials(gate_trials.pools(found), options.comparisons, options.seed)
    lines, acceptable = gate_trials.summary(found, done)
    terminal.one_table(gate_trials.table(done), Console())
    print("\n".join(lines))
    return 0 if acceptable else 1


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of a whole number from `least` on."""

    def read(written: str) -> int:
        if not written.isdecimal() or int(written) < least:
            raise argparse.ArgumentTypeError(f"{written!r} is not a whole number from {least} on")
        return int(written)

    return read


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m suite.campaigns", description=__doc__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, *files: str) -> Any:
        row = commands.add_parser(name, help=text, description=text)
        row.set_defaults(run=run)
        for each in files:
            row.add_argument(each.lower(), type=Path, metavar=each)
        return row

    row = command("pack", pack, "write run directories to one Parquet file", "FILE")
    row.add_argument("run_dirs", type=Path, metavar="RUN_DIR", nargs="+")
    selecting = [
        command("unpack", unpack, "write the run directories of a file", "FILE", "DIRECTORY"),
        command("drift", drift, "print how far runs of one thing differ", "FILE"),
        command("trials", trials, "try the gate on recorded paired comparisons", "FILE"),
    ]
    for row in selecting:
        row.add_argument(
            "--runs",
            action="append",
            default=[],
            metavar="PATTERN",
            help="only runs whose id matches (`*-free`); repeatable; default: all",
        )
    row.add_argument(
        "--comparisons",
        type=whole(1),
        default=1600,
        metavar="N",
        help="resampled of identical code, and as many of each slowdown; default: 1600",
    )
    row.add_argument("--seed", type=whole(0), default=1, metavar="N", help="default: 1")
    row = command("list", catalog, "print a table of campaigns as Markdown")
    row.add_argument("files", type=Path, metavar="FILE", nargs="*", help="default: docs/evidence")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; print BadInput and OSError as one line on stderr."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except (BadInput, OSError) as error:
        sys.stderr.write(f"python -m suite.campaigns: {error}\n")
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
