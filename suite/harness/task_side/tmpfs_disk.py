"""A separate disk for a cluster's model directory, which can be filled or made read-only.

In the cluster's user namespace any user may mount a tmpfs. To the rest of the machine the directory
looks empty. The cluster's init process mounts it. Worker-side: standard library only, in Python 3.8
syntax.
"""

import contextlib
import ctypes
import errno
import os

import namespaces

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32  # linux/mount.h
FLAGS = MS_NOSUID | MS_NODEV
FILLER = ".filler"
CHUNK = b"\0" * 65536


def mount(path, size):
    """Mount an empty disk of that size ("64m") at the path; only tasks that start later see it."""
    namespaces.own_mounts()
    _mount(path, FLAGS, "size=%s" % size)


def whole(path):
    """Restore the disk: make it writable and remove the filler."""
    _mount(path, FLAGS | MS_REMOUNT)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, FILLER))


def full(path):
    """Fill the disk to the last byte."""
    with open(os.path.join(path, FILLER), "ab", buffering=0) as file:
        for size in (len(CHUNK), 1):
            try:
                while file.write(CHUNK[:size]):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def read_only(path):
    """Make the disk read-only; OSError (EBUSY) if a file is open for writing."""
    _mount(path, FLAGS | MS_REMOUNT | MS_RDONLY)


STATES = {"whole": whole, "full": full, "read-only": read_only}


def _mount(path, flags, options=None):
    libc = ctypes.CDLL(None, use_errno=True)
    data = options.encode() if options else None
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", ctypes.c_ulong(flags), data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "mount %s: %s" % (path, os.strerror(number)))
