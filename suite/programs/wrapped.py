"""Arguments of a program that runs another one: its own, then "--", then those of a user's program.

A trainer of the suite needs no "--": it and the program around it know all flags between them.
Programs in this directory import it.
"""

import os
import sys


def split(arguments):
    """Return the arguments before and after the first "--"; the latter are of a user's program."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def let_import(program):
    """Let a program import the modules next to it, before all others."""
    sys.path.insert(0, os.path.dirname(os.path.realpath(program)))
