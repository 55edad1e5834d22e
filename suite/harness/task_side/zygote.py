"""Import TensorFlow once, then fork an init process, and so a cluster, for each connection.

Run by file path under any interpreter: standard library only, in Python 3.8 syntax. It exits when
its standard input ends, which happens when pytest ends in any way.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import socket
import sys
import time

import cluster_init


def listen(path):
    users = os.umask(0o177)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.umask(users)  # the tasks inherit it
    listener.listen(64)
    return listener


def serve(options):
    """Answer connections until standard input ends, which happens when pytest ends."""
    listener = listen(options.socket)
    zygote = os.getpid()
    wake = cluster_init.wake_on_child_exit()
    started = time.monotonic()
    versions = preload(options.preload)
    gc.collect()
    spare_the_forks()
    print(
        json.dumps({"pid": zygote, "import_s": time.monotonic() - started, "versions": versions}),
        flush=True,
    )
    while True:
        ready, _, _ = select.select([listener, sys.stdin, wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
            shutil.rmtree(os.path.dirname(options.socket), ignore_errors=True)
            return 0
        if listener in ready:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                cluster_init.die_with_parent(zygote)
                cluster_init.forget_parent_signals()
                return cluster_init.keep_cluster(connection, options)
            connection.close()


def spare_the_forks():
    """Keep forks from writing to imported objects, which would copy their memory pages.

    The garbage collector would write to them, and so would the interpreter when it clears its
    modules at exit: 0.1 s per task.
    """
    # A reference that is never dropped, unlike a global, which is cleared with its module.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(gc.get_objects()))
    gc.freeze()


def preload(modules):
    """Import the modules of the tasks, with the parts that TensorFlow loads lazily."""
    versions = {}
    for name in modules:
        module = importlib.import_module(name)
        versions[name] = getattr(module, "__version__", "")
        if name == "tensorflow":
            versions["keras_module"] = module.keras.layers.Dense.__module__
            context = importlib.import_module("tensorflow.python.eager.context")
            # A started runtime has threads and locks that do not survive a fork. TensorFlow 2.12
            # makes a context at import, and starts nothing before its first use.
            if getattr(context._context, "_initialized", False):
                raise RuntimeError("importing TensorFlow started its runtime; use --spawn=exec")
    return versions


def parse(argv):
    parser = argparse.ArgumentParser(description="Starts tasks for the harness.")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--root", required=True, help="where reference_trainers is imported from")
    parser.add_argument("--spawn", choices=("fork", "exec"), default="fork")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE")
    return parser.parse_args(argv)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    # The harness's modules in this directory must not shadow a trainer's.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    return serve(parse(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
