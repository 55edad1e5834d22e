"""Bounds what tasks print to their logs, so that one that prints without end cannot fill the disk.

A task is ended when its log has MAX_PRINTED_BYTES. A log with more than MAX_LOG_BYTES loses its
middle when its task has ended, since a log that is written to cannot be cut without losing lines.
The process that keeps the cluster does it, since pytest may be busy or stopped while tasks print.
RLIMIT_FSIZE would limit checkpoints as well. Worker-side: standard library only, in Python 3.8
syntax.
"""

import contextlib
import os

MAX_PRINTED_BYTES = 1 << 30
MAX_LOG_BYTES = 64 << 20
KEPT_BYTES = 4 << 20  # at each end: TensorFlow says at the beginning what it chose
LOOK_S = 0.25  # between two looks, in which a log may grow by some 250 MB


def has_printed_too_much(path):
    """Return True if the task that writes this log is to be ended."""
    return _size(path) > MAX_PRINTED_BYTES


def report_end(path):
    """Add the line by which reports say why the task was ended."""
    with contextlib.suppress(OSError), open(path, "a") as log:
        size = MAX_PRINTED_BYTES / 1e6
        log.write("\nOutputError: the task was ended, having printed more than %.1f MB\n" % size)


def shorten(path):
    """Cut the middle of a log that is too large, and say in its place how much."""
    size = _size(path)
    if size <= MAX_LOG_BYTES:
        return
    with contextlib.suppress(OSError), open(path, "r+b") as log:
        log.seek(size - KEPT_BYTES)
        end = log.read()
        log.truncate(KEPT_BYTES)
        log.seek(KEPT_BYTES)
        cut = size - 2 * KEPT_BYTES
        log.write(b"\n... %.1f MB cut ...\n" % (cut / 1e6) + end)


def _size(path):
    """Return 0 for a log that was removed with its run directory."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
