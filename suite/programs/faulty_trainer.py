"""Run a trainer in which one task injects a fault into itself, at a step or during a save.

It takes its own flags first, then those of the trainer, whose program is unchanged. The fault
follows the event of the step, or the creation of a new file in the model directory. A restarted
task injects no fault.
"""

import argparse
import ctypes
import os
import signal
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import wrapped

from reference_trainers.support.events import EventWriter

SLOWER_S = 0.1  # extra time of a straggler's step
IN_CREATE = 0x100  # linux/inotify.h


def fail():
    error = RuntimeError("injected: this step fails")
    error.of_program = True  # type: ignore[attr-defined]  # so that an observer passes it on
    raise error


def leave():
    sys.exit(0)


def dawdle():
    threading.Event().wait(SLOWER_S)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS = {"exception": fail, "exit": leave, "straggler": dawdle, "sigkill": die}


class ProgramFault:
    """Wrap the event writer's methods, through which a trainer reports its progress."""

    def __init__(self, args, model_dir):
        self.args = args
        self.model_dir = model_dir
        self.watching = self.reported = False

    def wrap(self, write):
        def write_and_inject(writer, event, **fields):
            write(writer, event, **fields)
            if writer.task != self.args.target or writer.attempt:
                return
            if self.args.when == "step" and event == "step":
                self.after_step(writer, fields["global_step"])
            elif self.args.when == "saving" and self.has_saved(event, fields):
                self.before_save(writer)

        return write_and_inject

    def after_step(self, writer, global_step):
        """Inject the fault after this step and, if the task survives, after each later step."""
        if global_step < self.args.at_step:
            return
        self.report(writer)
        FAULTS[self.args.fault]()

    def has_saved(self, event, fields):
        """Return True if a save is complete.

        That is after step `at_step` or, if it is 0, at the event of a save.
        """
        if self.args.at_step:
            return event == "step" and fields["global_step"] >= self.args.at_step
        return event == "checkpoint_saved"

    def before_save(self, writer):
        """Inject the fault as soon as the next save has created a file."""
        if not self.watching:
            self.watching = True
            watch = watch_directories(self.model_dir)
            threading.Thread(target=self.wait_for_save, args=(writer, watch), daemon=True).start()

    def wait_for_save(self, writer, watch):
        os.read(watch, 4096)
        self.report(writer)
        FAULTS[self.args.fault]()

    def report(self, writer):
        """Write `fault_started`, once."""
        if not self.reported:
            self.reported = True
            writer.write("fault_started", fault=self.args.fault)


def watch_directories(top):
    """Return a descriptor that is readable once a file is created in `top` or a subdirectory."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init()
    for directory, _, _ in os.walk(top):
        if libc.inotify_add_watch(watch, os.fsencode(directory), IN_CREATE) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch %s" % directory)
    return watch


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--program", required=True, help="the trainer")
    parser.add_argument("--fault", choices=FAULTS, required=True, help="what goes wrong")
    parser.add_argument("--when", choices=("step", "saving"), default="step")
    parser.add_argument("--target", required=True, help="the task in which it does")
    parser.add_argument(
        "--at-step", type=int, required=True, help="global step after which it does"
    )
    parser.add_argument("--model-dir", default="", help="where a save is to be seen")
    given, theirs = wrapped.split(sys.argv[1:])
    args, rest = parser.parse_known_args(given)
    if args.model_dir and not theirs:
        rest += ["--model-dir", args.model_dir]  # the trainer takes it too
    rest += theirs
    fault = ProgramFault(args, args.model_dir)
    EventWriter.write_soon = fault.wrap(EventWriter.write_soon)  # type: ignore[method-assign]
    EventWriter.write = fault.wrap(EventWriter.write)  # type: ignore[method-assign]
    wrapped.run(args.program, rest)


if __name__ == "__main__":
    main()
