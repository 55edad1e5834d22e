"""Fetches one file, as a program of its own: `python download.py URL PATH`.

Looking up a name can block for longer than any socket's timeout, in a way that cannot be
interrupted from within pytest; a process can be given an alarm, and ended. Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import urllib.error
import urllib.request

ANSWER_S = 5  # no answer by then means that there is no way out of here
WHOLE_S = 60


def download(url: str, path: str) -> None:
    """Write the file whole or not at all; OSError otherwise. SIGALRM ends this process."""
    signal.alarm(ANSWER_S)
    with urllib.request.urlopen(url) as answer:
        signal.alarm(WHOLE_S)
        content = answer.read()
    handle, part = tempfile.mkstemp(dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(part, path)
    except OSError:
        os.unlink(part)
        raise


if __name__ == "__main__":
    try:
        download(*sys.argv[1:])
    except OSError as error:
        sys.exit(str(getattr(error, "reason", error)))
