"""Paths: directories outside the run directory, and what is left of a save."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from suite.harness.core.errors import HarnessError

ROOT = Path(__file__).resolve().parents[3]
TASK_SIDE = ROOT / "suite" / "harness" / "task_side"  # programs run by path, outside of pytest
SOCKET_PATH_BYTES = 107  # AF_UNIX has 108 bytes for a path, the last of them is 0: unix(7)
# Longest socket path below: that of Python's multiprocessing in a task. The zygote's is shorter.
LONGEST_BELOW = "/tfdc-xxxxxxxx/pymp-xxxxxxxx/listener-xxxxxxxx"
SHORT = ("/tmp", "/dev/shm")


def remains(path: str) -> bool:
    """Return True if a directory, or a checkpoint whose files start with that path, exists."""
    wanted = Path(path)
    return wanted.exists() or any(wanted.parent.glob(wanted.name + ".*"))


def short_directory() -> Path:
    """Create a private directory whose path is short enough for sockets; the caller removes it.

    Use the user's TMPDIR, else a base with a short path. Raise HarnessError, with the limit, if no
    directory fits.
    """
    chosen = tempfile.gettempdir()
    others = [base for base in (os.environ.get("XDG_RUNTIME_DIR"), *SHORT) if base]
    for base in (chosen, *filter(_is_safe, others)):
        if len(os.fsencode(base)) + len(LONGEST_BELOW) <= SOCKET_PATH_BYTES:
            try:
                return Path(tempfile.mkdtemp(prefix="tfdc-", dir=base))  # 0700
            except OSError:
                continue
    most = SOCKET_PATH_BYTES - len(LONGEST_BELOW)
    raise HarnessError(
        f"no directory for sockets, whose paths have at most {SOCKET_PATH_BYTES} bytes (AF_UNIX): "
        f"tried {', '.join([chosen, *others])}; set TMPDIR to one of at most {most} bytes"
    )


def _is_safe(base: str) -> bool:
    """Return True if only this user and root can replace entries of the directory."""
    try:
        found = os.stat(base)
    except OSError:
        return False
    own = found.st_uid in (0, os.getuid()) and not found.st_mode & 0o022
    return os.path.isabs(base) and (own or bool(found.st_mode & stat.S_ISVTX))


def private_directory(purpose: str) -> Path:
    """Return this user's private directory; raise HarnessError if others can access it."""
    path = Path(tempfile.gettempdir()) / f"tf-distribute-conformance-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HarnessError(f"cannot keep {purpose} in {path}: {error}") from error
    found = path.lstat()
    private = found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    if not (stat.S_ISDIR(found.st_mode) and private):
        raise HarnessError(f"cannot keep {purpose} in {path}: it is not this user's alone")
    return path
