"""Run a trainer within another program, which watches it or disturbs it.

The arguments are those of the program around it, then "--", then those of a user's program. A
trainer of the suite needs no "--": it and the program around it know all flags between them.
"""

import os
import runpy
import sys

from reference_trainers.support.events import EventWriter


def split(arguments):
    """Return the arguments before and after the first "--"; the latter are of a user's program."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def run(program, arguments):
    """Run the program as `python PROGRAM ARGUMENTS` does; an observer makes its changes to it."""
    sys.argv = [program] + arguments
    sys.path.insert(0, os.path.dirname(os.path.realpath(program)))
    observed = sys.modules.get("training_observer.program")
    if observed:
        observed.run_file(program)
    else:
        runpy.run_path(program, run_name="__main__")


def run_changed(program, names):
    """Run an observed trainer with this process's arguments; `names` replaces its functions.

    They are replaced before the observer makes its own changes to these functions.
    """
    before = sys.modules["training_observer.program"].BEFORE_MAIN
    before.insert(0, lambda namespace: namespace.update(names))
    run(program, sys.argv[1:])


def observer():
    """Return the observer of this process, or None."""
    observed = sys.modules.get("training_observer.observing")
    return observed.current[0] if observed and observed.current else None


def event_writer():
    """Return the event writer of this process, which is the observer's if there is one."""
    found = observer()
    return found.events if found else EventWriter()
