"""Download one file in a separate process: `python download.py URL PATH`.

Resolving a name can block for longer than any socket's timeout and cannot be interrupted from
within pytest. An alarm signal can end a process. Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import urllib.error
import urllib.request

ANSWER_S = 5  # without an answer by then there is no Internet access
WHOLE_S = 60


def download(url: str, path: str) -> None:
    """Write the file atomically, or raise OSError. SIGALRM ends this process on a timeout."""
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
