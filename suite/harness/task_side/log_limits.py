"""Limit the size of task logs, so that a task with endless output cannot fill the disk.

A task is killed when its log exceeds MAX_PRINTED_BYTES. A log of more than MAX_LOG_BYTES loses its
middle after its task has ended, since cutting a log that is being written would lose lines. The
cluster's init process enforces this, since pytest may be busy or stopped while tasks print.
RLIMIT_FSIZE would limit checkpoints as well. Worker-side: standard library only, in Python 3.8
syntax.
"""

import contextlib
import os

MAX_PRINTED_BYTES = 1 << 30
MAX_LOG_BYTES = 64 << 20
KEPT_BYTES = 4 << 20  # at each end; TensorFlow logs its choice of backend at the beginning
LOOK_S = 0.25  # between two checks, in which a log may grow by some 250 MB


def has_printed_too_much(path):
    """Return True if the log is so large that its task must be killed."""
    return _size(path) > MAX_PRINTED_BYTES


def report_end(path):
    """Append the line from which reports take the reason for the task's end."""
    with contextlib.suppress(OSError), open(path, "a") as log:
        size = MAX_PRINTED_BYTES / 1e6
        log.write("\nOutputError: the task was ended, having printed more than %.1f MB\n" % size)


def shorten(path):
    """Cut the middle of a log that is too large, and write the size of the cut in its place."""
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
    """Return the size of a log; 0 if it was removed with its run directory."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
