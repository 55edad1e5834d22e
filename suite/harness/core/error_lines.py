"""Find the error line that says why a task ended."""

from __future__ import annotations

import re

from reports.core import text

ERROR_BYTES = 1_200


ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|error)\b.*")


# What argparse's `error` prints; TensorFlow warns of unused values of a checkpoint after it.
REFUSAL = re.compile(r"^[\w.-]+: error: .+")


# Python prints an error in a destructor and goes on. That of a pool of threads, such as the one of
# MirroredStrategy, may come after the error that has ended the program.
IGNORED = re.compile(
    r"^Exception ignored in:.*\n(?:Traceback .*\n(?:[ \t]+.*\n)*.*\n?)?", re.MULTILINE
)


NATIVE_LOG = re.compile(r"^(?:[IWE]\d{4}|\d{4}-\d\d-\d\d)\s")


def last_error(log: str) -> str:
    """Return the line that says why a program ended.

    That is argparse's refusal, else the last exception, else the last line.
    """
    lines = [line.strip() for line in IGNORED.sub("", log).splitlines() if line.strip()]
    refusals = [line for line in lines if REFUSAL.match(line)]
    if refusals:
        return text.bounded(refusals[-1], ERROR_BYTES)
    errors = [i for i, line in enumerate(lines) if ERROR_LINE.match(line)]
    if errors:
        first = errors[-1]
        # TensorFlow's messages continue below a generic first line.
        return text.bounded(" ".join(lines[first : first + 3]), ERROR_BYTES)
    said = [line for line in lines if not NATIVE_LOG.match(line)] or lines
    return text.bounded(said[-1], ERROR_BYTES) if said else "it said nothing"
