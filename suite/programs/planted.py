"""A trainer in which one task does something wrong by itself, at a step.

Started with flags of its own, then those of the trainer, whose program is not changed: the fault
lies behind the event that tells of the step. A task that is started again does nothing wrong.
"""

import argparse
import os
import runpy
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from reference_trainers.events import EventWriter

SLOWER_S = 0.1  # a step of a straggler


def fail():
    raise RuntimeError("planted: this step fails")


def leave():
    sys.exit(0)


def dawdle():
    threading.Event().wait(SLOWER_S)


PLANTS = {"exception": fail, "exit": leave, "straggler": dawdle}


def plant(fault, victim, at_step):
    """Have the victim's first life do it after each step from that one on."""
    told = set()

    def after(write):
        def telling(writer, event, **fields):
            write(writer, event, **fields)
            mine = writer.task == victim and writer.attempt == 0 and event == "step"
            if not mine or fields["global_step"] < at_step:
                return
            if fault not in told:
                told.add(fault)
                writer.write("fault_started", fault=fault)
            PLANTS[fault]()

        return telling

    EventWriter.write_soon = after(EventWriter.write_soon)  # type: ignore[method-assign]
    EventWriter.write = after(EventWriter.write)  # type: ignore[method-assign]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the trainer")
    parser.add_argument("--plant", choices=PLANTS, required=True, help="what goes wrong")
    parser.add_argument("--victim", required=True, help="the task in which it does")
    parser.add_argument("--at-step", type=int, required=True, help="global step after which")
    args, rest = parser.parse_known_args()
    plant(args.plant, args.victim, args.at_step)
    sys.argv = [args.program] + rest
    runpy.run_path(args.program, run_name="__main__")


if __name__ == "__main__":
    main()
