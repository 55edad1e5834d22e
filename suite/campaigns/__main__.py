"""Pack run directories into a campaign, unpack them, list campaigns, try the gate, run programs.

Exit codes: 0 done; 1 the trials found false alarms or too few slowdowns, or other tests fail for
mutants or public programs than their rows say; 2 invalid input.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from reports.compare import run_drift, run_groups
from reports.core.table import Column, Row, Table
from reports.render import markdown, terminal
from reports.rundir import frame
from reports.rundir.frame import BadInput
from reports.stats import run_levels
from suite.campaigns import (
    gate_trials,
    growth_with_workers,
    mutants,
    parquet_file,
    public_programs,
    ratio_trials,
)
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import OPTIONS

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
# Options of pytest that run-mutants and run-public take, too.
PASSED_ON = ("--at-once", "--deadline-scale")
OPTIONS_BY_FLAG = {row.flag: row for row in OPTIONS.values()}
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


def ratio_history(options: argparse.Namespace) -> int:
    """Compare the ratios of recorded runs; return 1 for false alarms or missed slowdowns."""
    runs = [run for file in options.files for run in parquet_file.load(file, options.runs)]
    found = ratio_trials.run_trials(runs)
    terminal.one_table(ratio_trials.table(found), Console())
    return 0 if ratio_trials.acceptable(found) else 1


def workers(options: argparse.Namespace) -> int:
    """Print how the cost of a cluster grows with its workers."""
    found = growth_with_workers.table(parquet_file.load(options.file, options.runs))
    terminal.one_table(found, Console())
    return 0


def run_mutants(options: argparse.Namespace) -> int:
    """Examine mutants and print which tests find them; return 1 if their rows say otherwise."""
    names = options.only or mutants.BY_NAME
    unknown = [name for name in names if name not in mutants.BY_NAME]
    if unknown:
        raise BadInput(f"no mutant {unknown[0]!r}; known: {', '.join(mutants.BY_NAME)}")
    chosen = [mutants.BY_NAME[name] for name in names]
    data = options.data.resolve()
    files = mutants.write_programs(options.directory / "programs", data, chosen)
    run_dir = options.directory / "run"
    _examine(files, data, run_dir, options)
    return _print_mutants([frame.load(run_dir)])


def _examine(
    files: Sequence[Path],
    data: Path,
    run_dir: Path,
    options: argparse.Namespace,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the tests of training programs on these; raise BadInput if nothing was examined."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += [str(ROOT / "suite" / name) for name in ("conformance", "faults")]
    for path in files:
        command += ["--trainer", str(path)]
    command += ["--data", str(data), "--run-dir", str(run_dir)]
    for name in PASSED_ON:
        given = getattr(options, name[2:].replace("-", "_"))
        command += [name, given] if given else []
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, stdout=sys.stderr, check=False, env=environment)
    if done.returncode not in (0, 1) or not (run_dir / "run.json").exists():
        raise BadInput(f"nothing was examined: pytest ended with exit code {done.returncode}")


def show_mutants(options: argparse.Namespace) -> int:
    """Print which tests find the mutants of a packed run; return 1 if their rows say otherwise."""
    return _print_mutants(parquet_file.load(options.file, options.runs))


def _print_mutants(runs: Sequence[frame.RunFrames]) -> int:
    sys.stdout.write(markdown.one_table(mutants.table(runs), titled=False))
    lines = mutants.deviations(runs)
    print("\n".join(lines or ["All as the rows of programs.toml say."]))
    return 1 if lines else 0


def run_public(options: argparse.Namespace) -> int:
    """Fetch public programs, examine each, and print the results; return 1 if rows differ."""
    rows = public_programs.chosen(options.only, _tensorflow())
    directory, data = options.directory.resolve(), options.data.resolve()
    home = public_programs.home(directory / "home", data)
    run_dirs = []
    for row in rows:
        files = public_programs.place(row, directory / "programs" / row.name, options.checkouts)
        run_dirs.append(directory / "runs" / row.name)
        _examine(files, data, run_dirs[-1], options, {"HOME": str(home)})
    return _print_public([frame.load(run_dir) for run_dir in run_dirs])


def _tensorflow() -> str:
    try:
        return importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError as error:
        raise BadInput("TensorFlow is not installed for this interpreter") from error


def show_public(options: argparse.Namespace) -> int:
    """Print what packed runs say of the public programs; return 1 if their rows say otherwise."""
    return _print_public(parquet_file.load(options.file, options.runs))


def _print_public(runs: Sequence[frame.RunFrames]) -> int:
    for table in (public_programs.table(runs), public_programs.findings(runs)):
        sys.stdout.write(markdown.one_table(table, titled=False))
    lines = public_programs.deviations(runs)
    print("\n".join(lines or ["All as the rows of PROGRAMS say."]))
    return 1 if lines else 0


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
    ratios = command("ratios", ratio_history, "try ratios to a frozen side on recorded runs")
    ratios.add_argument("files", type=Path, metavar="FILE", nargs="+")
    selecting = [
        command("unpack", unpack, "write the run directories of a file", "FILE", "DIRECTORY"),
        command("drift", drift, "print how far runs of one thing differ", "FILE"),
        command("workers", workers, "print what clusters of more workers cost", "FILE"),
        ratios,
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
    row = command("mutants", show_mutants, "print which tests find the mutants", "FILE")
    row.set_defaults(runs=())
    row = command("public", show_public, "print what was found in public programs", "FILE")
    row.set_defaults(runs=())
    examining = [
        command("run-mutants", run_mutants, "examine the mutants, into a directory", "DIRECTORY"),
        command("run-public", run_public, "fetch and examine public programs", "DIRECTORY"),
    ]
    for row in examining:
        row.add_argument(
            "--data", type=Path, required=True, metavar="NPZ", help="images as Keras' mnist.npz"
        )
        for name in PASSED_ON:
            given = OPTIONS_BY_FLAG[name]
            row.add_argument(name, metavar=given.metavar, help=given.help)
        row.add_argument(
            "--only", action="append", default=[], metavar="NAME", help="this one; repeatable"
        )
    row.add_argument(
        "--checkouts",
        type=Path,
        metavar="DIRECTORY",
        help="has Git repositories OWNER/NAME and wheels; default: fetch from GitHub and PyPI",
    )
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
