"""Run a Python program in this process, as `python PROGRAM` or `python -m MODULE` does.

Shared by the cluster's init process, which runs tasks in forks, and by the observer.
"""

import ast
import atexit
import builtins
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import traceback
import types
import zipfile

run_module = vars(runpy)["_run_module_as_main"]  # what `python -m` calls

HERE = os.path.dirname(os.path.abspath(__file__))
BAD_PROGRAM = 2  # the interpreter's exit code for a program that it cannot open
INTERRUPTED = 128 + signal.SIGINT


BEFORE_MAIN = []  # functions to call with a program's namespace before its last statement runs


class Ended(object):
    """The end of a program: its exit code, and the exception that left it, or None."""

    def __init__(self, code, error=None):
        self.code, self.error = code, error


def run(program, arguments, module=False):
    """Run a program, or a module, and return how it ended; its messages are on stderr.

    The caller sets sys.path. An unhandled KeyboardInterrupt ends the process by SIGINT once the
    interpreter exits, as it ends `python PROGRAM`.
    """
    sys.argv = [program] + arguments
    interrupted = []
    atexit.register(lambda: interrupted and die_of_interrupt())  # first registered, so runs last
    try:
        if module:
            sys.argv[0] = "-m"
            new_main(__builtins__=builtins)  # otherwise the module gets the names of the caller
            run_module(program)
        else:
            run_file(program)
    except SystemExit as error:
        return Ended(exit_code(error), error)
    except BaseException as error:
        print_error(error, "" if module else file_name(program))
        if isinstance(error, KeyboardInterrupt):
            interrupted.append(error)
            return Ended(INTERRUPTED, error)
        return Ended(BAD_PROGRAM if isinstance(error, CannotOpen) else 1, error)
    return Ended(0)


class CannotOpen(Exception):
    """There is no such program; the message is that of the interpreter."""


def run_file(program):
    """Execute a file, or the __main__ of a directory or zip file, as the module __main__."""
    path = file_name(program)
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        where = (sys.executable, path, error.errno, error.strerror)
        raise CannotOpen("%s: can't open file %r: [Errno %d] %s" % where) from None
    main = new_main(
        __builtins__=builtins,
        __cached__=None,
        __doc__=None,
        __file__=path,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __package__=None,
        __spec__=None,
    )
    if BEFORE_MAIN:
        first, source = split(source, path)
        exec(compile(first, path, "exec", dont_inherit=True), main.__dict__)
        for change in BEFORE_MAIN:
            change(main.__dict__)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def split(source, path):
    """Return a program as two syntax trees, the second of its last statement.

    Of a trainer that is `if __name__ == "__main__": main()`.
    """
    whole = ast.parse(source, path)
    return [ast.Module(body, whole.type_ignores) for body in (whole.body[:-1], whole.body[-1:])]


def new_main(**names):
    """Return a new module __main__; it stays, for threads and atexit handlers of the program."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(names)
    return main


def file_name(program):
    """Return the path of a program as its tracebacks show it: absolute since Python 3.9."""
    return os.path.abspath(program) if sys.version_info >= (3, 9) else program


def exit_code(error):
    """Return the exit code of a SystemExit; print its message if it has one instead."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    sys.stdout.flush()
    print(error.code, file=sys.stderr)
    return 1


def die_of_interrupt():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def print_error(error, program):
    """Report an unhandled exception as the interpreter does, by sys.excepthook.

    The frames that called the program and those of the observer are left out. `program`: the path,
    or "" for a module.
    """
    if isinstance(error, CannotOpen):
        print(error, file=sys.stderr)
        return
    trace = error.__traceback__
    while trace and not is_first(trace.tb_frame.f_code.co_filename, program):
        trace = trace.tb_next
    # A program that does not compile has no frame; this prints its error alone.
    error.__traceback__ = trace
    hide_observer(error, set())
    sys.stdout.flush()
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        traceback.print_exc()


def is_first(filename, program):
    """Return True for the file of the outermost frame that the interpreter shows."""
    if program:
        return filename == program
    return filename in ("<frozen runpy>", runpy.__file__)


def hide_observer(error, seen):
    """Remove the observer's frames from the traceback of an exception and of its causes."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    kept = []
    trace = error.__traceback__
    while trace:
        if os.path.dirname(trace.tb_frame.f_code.co_filename) != HERE:
            kept.append(trace)
        trace = trace.tb_next
    for this, after in zip(kept, kept[1:] + [None]):  # noqa: B905 (Python 3.8)
        this.tb_next = after
    error.__traceback__ = kept[0] if kept else None
    hide_observer(error.__cause__, seen)
    hide_observer(error.__context__, seen)
