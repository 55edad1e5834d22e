"""Run a Python program, and watch its TensorFlow training from outside.

    python observe.py --task worker/0 [--module] [OPTIONS] PROGRAM [ARGUMENTS...]

The program runs as by `python PROGRAM ARGUMENTS`. TRAINER_EVENTS, TRAINER_ATTEMPT and TRAINER_HOLD
configure the observer's events, see reference_trainers/support/events.py. The program does not see
them.

With --of-script, for which see startup/sitecustomize.py, these are OBSERVER_EVENTS and so on. They
remain until the program is the first of its task to call a function that the observer hooks.
The options of OBSERVER_FLAGS are for the reference trainers.
"""

import argparse
import os
import sys


def parse(argv, flags):
    """Return the parsed command line; `flags` are OBSERVER_FLAGS."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", required=True, help="name of this task in the events")
    parser.add_argument("--module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument(
        "--of-script",
        action="store_true",
        help="observe only the first program of the task that trains",
    )
    for name, (kind, text) in flags.items():
        if kind is bool:
            parser.add_argument("--" + name, action="store_true", help=text)
        else:
            parser.add_argument("--" + name, type=kind, help=text)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    outside = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path[:] = [here] + outside + [root]
    from training_observer import observing

    from reference_trainers import OBSERVER_FLAGS

    # The program finds its own modules first, and none of this directory.
    sys.path[:] = outside
    return observing.run(parse(sys.argv[1:], OBSERVER_FLAGS))


if __name__ == "__main__":
    sys.exit(main())
