"""A /tmp of its own for a cluster, since programs of users save to fixed paths there.

What /tmp holds already stays there, shared, because a program, its data, an environment or the run
directory may be below it. What the tasks create in /tmp is in the new directory, for them alone.
The cluster's init process mounts it. Worker-side: standard library only, in Python 3.8 syntax.
"""

import contextlib
import ctypes
import os

import namespaces

MS_BIND, MS_REC = 4096, 16384  # linux/mount.h
TMP = "/tmp"


def mount(directory):
    """Make this empty directory the /tmp of this process and of its future children."""
    namespaces.own_mounts()
    for entry in os.scandir(TMP):
        with contextlib.suppress(FileNotFoundError):  # another program has removed it by now
            _share(entry, os.path.join(directory, entry.name))
    _bind(directory, TMP)


def _share(entry, place):
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), place)
    elif entry.is_dir():
        os.mkdir(place)
        _bind(entry.path, place)
    else:
        open(place, "x").close()
        _bind(entry.path, place)


def _bind(source, target):
    """Let the target be the source, with all that is mounted below it."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = ctypes.c_ulong(MS_BIND | MS_REC)
    if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source)
