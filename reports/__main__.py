"""`python -m reports`: one row of COMMANDS for each report.

Exit codes: 0 done; 1 a report found a problem in the runs; 2 invalid input or arguments, a page
that cannot be rendered or written (one line on stderr), or no comparison possible; 3 with
`--strict`, an answer is "cannot tell".
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from reports.ab import command as ab
from reports.cli_options import GATE, Option, formats
from reports.compare import engines, gate, output, run_groups
from reports.history import series, soak
from reports.history import tables as trends
from reports.render import markdown, terminal
from reports.rundir import compact, frame
from reports.rundir.frame import BadInput, RunFrames
from reports.sections import fault_matrix
from reports.sections.registry import Failures
from reports.upgrade import bisection
from reports.upgrade import command as upgrade

BAD_INPUT = 2
LATEST = "latest"
RUNS = Path("reports") / "runs"
# Exit codes of all commands; `Command.codes` adds to them.
CODES = {0: "done", BAD_INPUT: "bad input, with one line on stderr that says what is wrong"}
GATE_CODES = {
    0: "no regression",
    1: "a regression",
    BAD_INPUT: "bad input, or nothing could be compared",
    3: "with --strict: an answer is cannot tell",
}
ALL_CODES = {
    **CODES,
    1: "a regression, or a problem in the runs",
    3: "with --strict: an answer is cannot tell",
}
NARGS = {
    "…": "+",
    "*": "*",
}  # last character of an argument's name -> nargs of argparse


@dataclass(frozen=True)
class Command:
    """One report: name, help text, options, and the function that processes the runs."""

    name: str
    help: str
    run: Callable[[list[Any], argparse.Namespace], int | None]  # returns the exit code; None is 0
    options: tuple[Option, ...] = ()
    load: Callable[[Path], Any] = frame.load_complete  # reader of each run
    runs: tuple[str, ...] = ("RUN_DIR…",)  # names of the arguments, see MANY
    codes: Mapping[int, str] = field(default_factory=dict)  # exit codes in addition to CODES
    runs_help: str = f"a run's directory, or `{LATEST}` for the one in {RUNS / LATEST}"


def show(runs: list[RunFrames], options: argparse.Namespace) -> int:
    """Print the runs one after the other; return 2 if a section could not be rendered."""
    failures = Failures()
    if options.format == "md":
        sys.stdout.write("\n".join(markdown.render(run, failures) for run in runs))
        return _report(failures)

    def summaries(console: Console) -> None:
        for number, run in enumerate(runs):
            if number:
                console.print()
            terminal.summary(run, console, full=True, failures=failures)

    _print(summaries)
    return _report(failures)


def _report(failures: Failures) -> int:
    """Print the parts that could not be rendered to stderr; return the exit code."""
    for note in failures:
        sys.stderr.write(f"{note}\n")
    return BAD_INPUT if failures else 0


def fault_table(runs: list[RunFrames], options: argparse.Namespace) -> int:
    """Print the fault matrix over all runs, and its summary; return 1 for a red verdict or leak."""
    table = fault_matrix.spread(runs)
    totals, is_green = fault_matrix.tally(runs)
    if options.format == "md":
        sys.stdout.write(f"{markdown.one_table(table)}\n{totals}.\n")
    else:
        _print(lambda console: terminal.one_table(table, console))
        print(f"{totals}.")
    return 0 if is_green else 1


def _print(draw: Callable[[Console], None]) -> None:
    console = Console()
    with console.capture() as capture:  # Rich would end the process when `head` closes the pipe
        draw(console)
    sys.stdout.write(capture.get())


def html(runs: list[RunFrames], options: argparse.Namespace) -> int:
    """Write each run's page; return 2 if a section could not be rendered."""
    from reports.render import html as page  # draws with Matplotlib, which takes a second to import
    from reports.rundir import writer as store

    if options.output and len(runs) > 1:
        raise BadInput("-o takes one run; without -o each page is written to its run directory")
    failures = Failures()
    for run in runs:
        path = _writable(options.output or run.directory / "report.html")
        store.write_file(path, page.render(run, failures))
        print(path)
    return _report(failures)


def _writable(path: Path) -> Path:
    if path.is_dir() or not path.parent.is_dir():
        obstacle = "it is a directory" if path.is_dir() else f"{path.parent} is no directory"
        raise BadInput(f"{path} cannot be written: {obstacle}")
    return path


def show_history(directories: list[series.LoadedRuns], options: argparse.Namespace) -> None:
    """Print the history of the metrics, or write it as a page with charts.

    A damaged run is left out, with the reason on stderr.
    """
    for reason in dict.fromkeys(reason for each in directories for reason in each.damaged):
        sys.stderr.write(f"python -m reports {options.command}: left out: {reason}\n")
    record = series.build(directories, options.metric or ())
    if options.output:
        from reports.history import page as history_page  # imports Matplotlib, which is slow
        from reports.rundir import writer as store

        store.write_file(_writable(options.output), history_page.render(record))
        print(options.output)
        return
    tables = trends.tables(record)
    if options.format == "md":
        sys.stdout.write("\n".join(map(markdown.one_table, tables)))
    for table in tables if options.format == "text" else ():
        _print(functools.partial(terminal.one_table, table))
    print(f"\n{record.outcome()}.")


def support_matrix(published: list[compact.Published], options: argparse.Namespace) -> int:
    """Print the support matrix, or write it as a site or as one file for each column."""
    from reports.matrix import cells, claims, summary

    matrix = cells.build(published)
    if options.publish:
        for path in summary.publish(matrix, options.publish):
            print(path)
    if options.output:
        from reports.matrix import site  # imports Matplotlib, which is slow

        files = site.write(matrix, claims.load(options.claims), options.output, options.docs)
        print(f"{options.output / 'index.html'} and {len(files) - 1} more files")
    if options.publish or options.output:
        return 0
    table = summary.training(matrix) if options.brief else summary.table(matrix)
    if options.format == "md":
        sys.stdout.write(markdown.one_table(table))
    else:
        _print(lambda console: terminal.one_table(table, console))
    return 0


def propose_expectations(published: list[compact.Published], options: argparse.Namespace) -> int:
    """Print a patch of the expectations; return 1 if there is something to change."""
    from reports.matrix import columns, proposals

    path = options.table or proposals.DEFAULT
    found = proposals.propose(path, columns.newest(published))
    for note in found.notes:
        print(note, file=sys.stderr)
    sys.stdout.write(found.patch(f"suite/{path.name}"))
    return 1 if found.before != found.after or found.notes else 0


def check_submission(runs: list[RunFrames], options: argparse.Namespace) -> int:
    """Print a line for each reason not to publish the run; return 1 if there is one."""
    from reports.matrix import claims, submission

    (run,) = runs
    problems = submission.problems(run, claims.load(options.claims))
    print("\n".join(problems or [f"{run.directory} can be published: {submission.facts(run)}"]))
    return 1 if problems else 0


def show_soak(runs: list[dict[str, Any]], _: argparse.Namespace) -> int:
    """Summarize many runs of the same thing; return 1 if a problem voids them."""
    print(soak.render(runs))
    return 1 if soak.problems(runs) else 0


def compare_runs(pair: list[run_groups.Side], options: argparse.Namespace) -> int:
    """Compare NEW with BASE; return the exit code of the gate."""
    base, new = pair
    confirm = run_groups.load(run_directory(options.confirm)) if options.confirm else None
    comparison = gate.compare(
        base, new, confirm, floor=options.floor, drift=options.drift, numbers=not options.verdicts
    )
    code = comparison.exit_code(options.strict)
    if options.format == "text":
        _print(lambda console: output.as_text(comparison, console))
    elif options.format == "md":
        sys.stdout.write(output.as_markdown(comparison, code))
    else:
        sys.stdout.write(output.as_json(comparison, code))
    return code


def compare_engines(pair: list[run_groups.Side], options: argparse.Namespace) -> int:
    """Compare the verdicts of two engines; return 1 if a test has another verdict on one."""
    base, new = pair
    comparison = engines.compare(base, new)
    if comparison.table.rows and options.format == "md":
        sys.stdout.write(f"{markdown.one_table(comparison.table)}\n")
    elif comparison.table.rows:
        _print(lambda console: terminal.one_table(comparison.table, console))
    print(f"{comparison.outcome()}.")
    return 1 if comparison.differing else 0


def compare_interleaved(runs: list[RunFrames], options: argparse.Namespace) -> int:
    """Measure two sides interleaved, unless runs are given, and compare them."""
    outcome = ab.outcome(runs, options)
    if options.format == "json":
        sys.stdout.write(outcome.to_json())
    elif options.format == "md":
        sys.stdout.write("\n".join(map(markdown.one_table, outcome.tables())))
    else:
        for table in outcome.tables():
            _print(functools.partial(terminal.one_table, table))
    return outcome.exit_code(options.strict)


def judge_upgrade(directories: list[Path], options: argparse.Namespace) -> int:
    """Measure what an upgrade changes, or show a recorded one."""
    page, code = upgrade.result(directories, options)
    texts = {"json": page.json, "md": page.markdown, "annotations": page.annotations}
    if options.format in texts:
        sys.stdout.write(texts[options.format]())
    else:
        _print(page.text)
    return code


def bisect(_: list[Path], options: argparse.Namespace) -> int:
    """Bisect the releases between two sides."""
    found = bisection.result(options)
    if options.format == "md":
        sys.stdout.write(found.markdown())
    else:
        _print(lambda console: terminal.one_table(found.table(), console))
    return 0 if found.is_exact else 1


FORMAT = formats("text", "md")
CLAIMS: Option = (
    ("--claims",),
    {"type": Path, "metavar": "FILE", "help": "default: suite/claims.toml of this checkout"},
)
COMMANDS = (
    Command(
        "show",
        "print runs as text or Markdown",
        show,
        (FORMAT,),
        load=frame.load,
    ),
    Command(
        "html",
        "write a self-contained page for each run",
        html,
        (
            (
                ("-o", "--output"),
                {"type": Path, "metavar": "FILE", "help": "default: report.html in RUN_DIR"},
            ),
        ),
        load=frame.load,
    ),
    Command(
        "faults",
        "the fault matrix over several runs: median and range",
        fault_table,
        (FORMAT,),
        codes={1: "a red verdict, or a leak"},
    ),
    Command(
        "history",
        "trends of metrics over all runs below these directories, and change points",
        show_history,
        (
            FORMAT,
            (
                ("-o", "--output"),
                {"type": Path, "metavar": "FILE", "help": "write an HTML page with charts instead"},
            ),
            (
                ("--metric",),
                {"action": "append", "metavar": "NAME", "help": "only this metric; repeatable"},
            ),
        ),
        load=series.load,
        codes={0: "done; a damaged run is left out, with one line on stderr"},
    ),
    Command(
        "compare",
        "compare NEW with BASE, each a run or a directory of repeated runs",
        compare_runs,
        GATE,
        run_groups.load,
        ("BASE", "NEW"),
        GATE_CODES,
    ),
    Command(
        "engines",
        "compare the verdicts of a run on Ray with those of a run on this machine",
        compare_engines,
        (FORMAT,),
        run_groups.load,
        ("BASE", "NEW"),
        {
            0: "all tests that both runs have are equal, or unsupported on one engine",
            1: "a test has another verdict",
        },
    ),
    Command(
        "ab",
        "measure two interpreters, backends or trainers interleaved; compare NEW with BASE",
        compare_interleaved,
        ab.OPTIONS,
        runs=("RUN_DIR*",),
        codes={**GATE_CODES, 1: "a regression, or a comparison without a result"},
    ),
    Command(
        "upgrade",
        "what an upgrade breaks and what it makes slower: examine both sides, and compare",
        judge_upgrade,
        upgrade.OPTIONS,
        load=Path,
        runs=("DIR*",),
        runs_help="directory of a recorded upgrade, to show it again",
        codes={
            0: "nothing stopped passing or became slower",
            1: "a regression, or a comparison without a result",
            BAD_INPUT: "bad input, a side that cannot be examined, or nothing could be compared",
            3: "with --strict: an answer is cannot tell, or something was not looked at",
            130: "stopped by SIGINT, with a page of what was done",
            143: "stopped by SIGTERM, with a page of what was done",
        },
    ),
    Command(
        "bisect",
        "find the first release on which a test fails or a step is slower",
        bisect,
        bisection.OPTIONS,
        load=Path,
        runs=(),
        codes={
            0: "the first bad release is known",
            1: "releases next to it could not be examined, so that it is one of several",
        },
    ),
    Command(
        "matrix",
        "what works on which TensorFlow and Keras: a table, or a site",
        support_matrix,
        (
            FORMAT,
            (
                ("--brief",),
                {"action": "store_true", "help": "print only which approach trains"},
            ),
            (
                ("-o", "--output"),
                {"type": Path, "metavar": "DIR", "help": "write the site to this directory"},
            ),
            (
                ("--publish",),
                {
                    "type": Path,
                    "metavar": "DIR",
                    "help": "write a file for each column to this directory, to be read as a RUN",
                },
            ),
            CLAIMS,
            (
                ("--docs",),
                {
                    "default": "",
                    "metavar": "ADDRESS",
                    "help": "link to the documentation, relative to the site: `../index.html`",
                },
            ),
        ),
        load=compact.load,
        runs=("RUN…",),
    ),
    Command(
        "expectations",
        "propose added and narrowed rows of the expectations, as a patch",
        propose_expectations,
        (
            (
                ("--table",),
                {
                    "type": Path,
                    "metavar": "FILE",
                    "help": "default: suite/expectations.toml of this checkout",
                },
            ),
        ),
        load=compact.load,
        runs=("RUN…",),
        codes={0: "nothing to change", 1: "rows are proposed, or a note says what to look at"},
    ),
    Command(
        "submission",
        "check a contributed run for completeness and consistency",
        check_submission,
        (CLAIMS,),
        load=frame.read,
        runs=("RUN_DIR",),
        codes={0: "the run can be published", 1: "it cannot, with one line for each reason"},
    ),
    Command(
        "soak",
        "summarize repeated runs: flakes, leaks",
        show_soak,
        load=soak.load,
        codes={1: "a run is not green, or the runs differ"},
    ),
)


class Parser(argparse.ArgumentParser):
    """Parser with errors of one line; argparse's usage lines are left to --help."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        raw = argparse.RawDescriptionHelpFormatter  # a line for each exit code
        super().__init__(*names, formatter_class=raw, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def _exit_codes(codes: Mapping[int, str]) -> str:
    return "\n".join(["exit codes:", *(f"  {code}  {codes[code]}" for code in sorted(codes))])


def parser() -> Parser:
    top = Parser(
        "python -m reports",
        description="Reports on runs of the suite.",
        epilog=_exit_codes(ALL_CODES),
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for row in COMMANDS:
        epilog = _exit_codes({**CODES, **row.codes})
        command = commands.add_parser(row.name, help=row.help, description=row.help, epilog=epilog)
        command.set_defaults(row=row)
        command.set_defaults(run_dirs=[])
        for name in row.runs:
            command.add_argument(
                "run_dirs",
                action="extend",
                nargs=NARGS.get(name[-1], 1),
                metavar=name.rstrip("".join(NARGS)),
                help=row.runs_help,
            )
        for names, settings in row.options:
            command.add_argument(*names, **settings)
    return top


def run_directory(name: str) -> Path:
    """Return the path; `latest` is searched here and in the directory of this checkout."""
    if name != LATEST:
        return Path(name)
    for root in (Path(), Path(__file__).resolve().parent.parent):
        if (root / RUNS / LATEST).exists():
            return (root / RUNS / LATEST).resolve()
    raise BadInput(f"there is no {RUNS / LATEST}: no run yet")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; print BadInput and OSError as one line on stderr."""
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character
    try:
        runs = [options.row.load(run_directory(name)) for name in options.run_dirs]
        code = options.row.run(runs, options) or 0
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (BadInput, OSError) as error:
        sys.stderr.write(f"python -m reports {options.command}: {error}\n")
        return BAD_INPUT
    return code


if __name__ == "__main__":
    sys.exit(main())
