"""`python -m suite`: one row of COMMANDS for each command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import TextIOWrapper

from suite import new_trainer
from suite.doctor import command as doctor
from suite.harness.core.errors import BadInput

BAD_USAGE = 2


@dataclass(frozen=True)
class Command:
    """A command: its name, help text, options, exit codes, and the function that runs it."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    codes: dict[int, str]


COMMANDS = (
    Command(
        "doctor",
        "say what TF_CONFIG, this machine and TensorFlow allow, before a run",
        doctor.add_arguments,
        doctor.run,
        doctor.CODES,
    ),
    Command(
        "new",
        "write a trainer to begin with, and its description for --trainer",
        new_trainer.add_arguments,
        new_trainer.run,
        new_trainer.CODES,
    ),
)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m suite", description=__doc__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for row in COMMANDS:
        one = commands.add_parser(row.name, help=row.help, description=row.help)
        row.add_arguments(one)
        one.set_defaults(run=row.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; print BadInput as one line on stderr."""
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BadInput as error:
        sys.stderr.write(f"python -m suite: {error}\n")
        return BAD_USAGE
    return code


if __name__ == "__main__":
    sys.exit(main())
