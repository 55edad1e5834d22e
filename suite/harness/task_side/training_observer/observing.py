"""Run a program under the observer, in this process."""

import os
import re
import sys
import threading

from . import program, table
from .changes import MODEL, UNSUPPORTED, Changes
from .observer import Observer, started_fields
from .row_files import RowFiles
from .writer import ClaimingWriter, ObserverWriter

current = []  # the observer of this process, if there is one


def run(args):
    """Run the program of a command line of observe.py, and return its exit code."""
    set_command(args.program, args.arguments, args.module)
    writer = ClaimingWriter if args.of_script else ObserverWriter
    observer = start(writer(args.task), args.program)
    observer.audits_input = args.audit_input
    observer.events.dumps = observer.events.dumps or args.dump_weights
    changes = observer.changes = Changes(args)
    if args.audit_input:
        changes.rows_path = observer.events.sibling("rows")
        observer.row_files = RowFiles(changes.rows_path)
    if not changes.made:
        program.BEFORE_MAIN.append(changes.make)
    ended = program.run(args.program, args.arguments, args.module)
    if changes.probes and lacks_api(ended.error):
        # A reference trainer of an approach that this TensorFlow does not have.
        observer.write("unsupported", reason="%s: %s" % (type(ended.error).__name__, ended.error))
        ended.code = UNSUPPORTED
    if not changes.made and ended.code == 0:
        observer.report_failure(MODEL, "the program has no function of this name")
    if ended.code == 0:
        wait_for_threads()
    observer.end(ended.code, ended.error)
    return ended.code


def lacks_api(error):
    """Return True if TensorFlow has no attribute of a name that a program uses.

    A name that Keras lacks does not count: the approach is documented for this
    TensorFlow, and the error is a deviation of the Keras that was chosen.
    """
    pattern = r"module 'tensorflow\b.*' has no attribute"
    return isinstance(error, AttributeError) and bool(re.match(pattern, str(error)))


def set_command(name, arguments, module):
    """Set what shows the command line of the interpreter, as for the program alone."""
    if hasattr(sys, "orig_argv"):
        own = [i for i, text in enumerate(sys.orig_argv) if text.endswith("observe.py")]
        options = sys.orig_argv[: own[0]] if own else [sys.executable]
        sys.orig_argv = options + ["-m"] * module + [name] + arguments
    if not getattr(sys.flags, "safe_path", False):
        first = os.getcwd() if module else os.path.dirname(os.path.realpath(name))
        sys.path.insert(0, first)


def start(events, name):
    """Start observing this process, and return the observer."""
    observer = Observer(events, name)
    current.append(observer)
    if events.enabled:
        events.write("started", **started_fields(name))
        observer.install(table.HOOKS)
        see_hard_exits(observer)
    return observer


def wait_for_threads():
    """Wait for threads of the program, as the interpreter does before it exits.

    The program may train in one of them.
    """
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]


def see_hard_exits(observer):
    """Write pending events before os._exit, and the error that made the program call it."""
    leave = os._exit

    def observed_exit(status):
        error = sys.exc_info()[1]
        observer.end(status, error)
        leave(status)

    os._exit = observed_exit
