"""Run a trainer within another program, which watches it or disturbs it."""

import os
import runpy
import sys


def run(program, arguments):
    """Run the program as `python PROGRAM ARGUMENTS` does; an observer makes its changes to it."""
    sys.argv = [program] + arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    observed = sys.modules.get("training_observer.program")
    if observed:
        observed.run_file(program)
    else:
        runpy.run_path(program, run_name="__main__")
