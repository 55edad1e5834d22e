"""The command: make the sides, measure them, and write the page.

`upgrade.md`, `upgrade.html` and `upgrade.json` lie in the directory of the upgrade, next to the
runs of both sides and `record.json`. A command that a signal stops writes them of what it has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.ab import command as ab
from reports.ab import suite_run
from reports.cli_options import STRICT, Option, duration, formats
from reports.rundir import writer as store
from reports.rundir.frame import BadInput
from reports.upgrade import environments, measure, sides
from reports.upgrade.page import Page

SIDE = (
    "a requirement (tensorflow==2.21.*), a wheel, an interpreter, git:COMMIT of your program, "
    "NAME=VALUE, --backend or --keras, @FILE with such words, or several of them in one argument"
)
BUDGET_S, LEAST_S, MOST_S = 600.0, 60.0, 24 * 3600.0
# Options that are passed on to pytest.
PASSED_ON = ("--trainer", "--backend", "--keras", *measure.COMMON, "--seed")
OPTIONS: tuple[Option, ...] = (
    (("--base",), {"metavar": "SIDE", "help": f"what you have: {SIDE}"}),
    (("--new",), {"metavar": "SIDE", "help": "what you may get, in the same words"}),
    *(option for option in ab.OPTIONS if option[0][0] in PASSED_ON),
    (
        ("--budget",),
        {
            "type": duration(LEAST_S, MOST_S),
            "default": BUDGET_S,
            "metavar": "TIME",
            "help": "time for the comparison of step times, in addition to that for installing and "
            "for the verdicts: 90, 90s or 10m (default: 10m)",
        },
    ),
    (
        ("--reinstall",),
        {"action": "store_true", "help": "make environments anew that were made before"},
    ),
    (
        ("--run-dir",),
        {"type": Path, "metavar": "DIR", "help": "default: reports/runs/upgrade-<time>"},
    ),
    STRICT,
    formats("text", "md", "json", "annotations"),
)


def result(directories: Sequence[Path], options: argparse.Namespace) -> tuple[Page, int]:
    """Return the page of a recorded upgrade, or of one that is made now, and the exit code.

    Raise BadInput if the options contradict each other or a side cannot be made or examined.
    """
    if directories and (options.base or options.new):
        raise BadInput("give a recorded upgrade or --base and --new, not both")
    if len(directories) > 1:
        raise BadInput("give one recorded upgrade")
    if directories:
        page = Page(measure.load(directories[0]))
        return page, page.exit_code(options.strict)
    for name in measure.SIDES:
        if not getattr(options, name):
            raise BadInput(f"--{name}: name a side, such as --{name} tensorflow==2.21.*")
    asked = [sides.read(name, getattr(options, name)) for name in measure.SIDES]
    directory: Path = options.run_dir or ab.new_directory("upgrade")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BadInput(f"--run-dir {directory}: there is something; name a new directory")
    with suite_run.stoppable():
        return _made(asked, options, directory)


def _made(
    asked: Sequence[sides.Side], options: argparse.Namespace, directory: Path
) -> tuple[Page, int]:
    stopped = 0
    try:
        programs = environments.programs_of(asked, options.trainer, directory / "programs")
        pythons = [
            environments.python_of(side, environments.cache(), options.reinstall) for side in asked
        ]
        base, new = asked
        pair = sides.Pair(
            base, new, (pythons[0], pythons[1]), (programs[0], programs[1]) if programs else None
        )
        pair.paired_arguments()  # refuses sides that differ in several ways, before any run
        measure.measure(pair, options, directory)
    except suite_run.Stopped as error:
        stopped = 128 + error.number
        if not (directory / measure.RECORD).exists():
            raise BadInput(f"{error}; nothing was measured") from error
    page = Page(measure.load(directory))
    for suffix, content in (("md", page.markdown), ("html", page.html), ("json", page.json)):
        store.write_file(directory / f"upgrade.{suffix}", content())
    print(f"{directory / 'upgrade.html'}", file=sys.stderr)
    return page, stopped or page.exit_code(options.strict)
