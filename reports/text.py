"""Text that came from logs and exceptions, made fit for files, terminals and pages.

TensorFlow's messages carry colour codes, control characters and, from killed processes, bytes
that are no text at all; any of them could break a report at the very end of a run.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

MISSING = "—"
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]?")
CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
SLUG_LENGTH = 120


def clean(value: Any) -> Any:
    """The same value with its strings (in mappings and lists as well) free of what breaks files."""
    if isinstance(value, str):
        text = ESCAPES.sub("", value.replace("\r\n", "\n").replace("\r", "\n"))
        return text.translate(CONTROLS).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(clean(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def one_line(text: str) -> str:
    """All white space, line ends too, as single blanks."""
    return " ".join(text.split())


def slug(test: str) -> str:
    """A file name for a test id; long ids are cut and told apart by a hash."""
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", test).strip("-.") or "test"
    if len(name) <= SLUG_LENGTH:
        return name
    return name[: SLUG_LENGTH - 9] + "-" + hashlib.sha256(test.encode()).hexdigest()[:8]


def figure(value: float | None, digits: int = 3) -> str:
    """A number with that many significant digits and no exponent; what is missing says so."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")  # 9.999 has two digits before the point, not one
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{decimals}f}"


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
