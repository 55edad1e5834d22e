"""Sanitized text from logs and exceptions, for files, terminals and pages.

TensorFlow's messages contain color codes, control characters and, from killed processes, bytes that
are not text. Any of them could break a report at the very end of a run. A trainer may also print
without end, so the text in reports is bounded in bytes.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MISSING = "—"
ANSI_COLORS = re.compile(r"\x1b\[[0-9;:]*m")
# Terminals interpret these characters and XML files reject them: C0 and C1 controls, line
# separators, marks and overrides of the writing direction, non-characters.
ACTIVE = re.compile(
    "([\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff])\\1*"
)
SURROGATES = re.compile("[\ud800-\udfff]")  # from bytes that are not UTF-8
REPEATED = 3  # most repeats of a character that are shown; more are shown as a count
MAX_LINE_BYTES = 2_000
MAX_CELL_BYTES = 16_000  # bytes of a table cell
MAX_TEXT_BYTES = 128_000
END_BYTES = 256_000  # bytes at the end of a log that are searched for last lines and errors
UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}  # unit of a duration -> its seconds
SLUG_LENGTH = 120


def clean(value: Any) -> Any:
    """Return the value with its strings, also in mappings and lists, made printable.

    Escape sequences and other control characters become visible (`\\x1b`, `\\x00{9}` for nine in a
    row), except tabs and line ends. Colors are removed. Bytes that are not UTF-8 become U+FFFD.
    """
    if isinstance(value, str):
        if value.isprintable():  # nearly every cell
            return value
        text = ANSI_COLORS.sub("", value.replace("\r\n", "\n").replace("\r", "\n"))
        return SURROGATES.sub("\ufffd", ACTIVE.sub(_visible, text))
    if isinstance(value, Mapping):
        return {str(clean(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def _visible(run: re.Match[str]) -> str:
    code, count = ord(run[1]), len(run[0])
    shown = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    return shown * count if count <= REPEATED else f"{shown}{{{count}}}"


def bounded(text: str, most_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the text, cleaned, in at most that many bytes of UTF-8.

    If it is longer, its middle is replaced by a note with the number of bytes cut.
    """
    data = clean(text).encode()
    if len(data) <= most_bytes:
        return data.decode()
    end = "\n" if b"\n" in data else " "
    room = most_bytes - len(cut_note(len(data))) - 2
    head, tail = data[: room - room // 2], data[-(room // 2) :]
    note = cut_note(len(data) - room)
    return f"{head.decode(errors='ignore')}{end}{note}{end}{tail.decode(errors='ignore')}"


def all_bounded(value: Any, most_bytes: int = MAX_TEXT_BYTES) -> Any:
    """Return the value with `bounded` applied to its strings, also in mappings and lists."""
    if isinstance(value, str):
        return bounded(value, most_bytes)
    if isinstance(value, Mapping):
        return {str(clean(key)): all_bounded(item, most_bytes) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_bounded(item, most_bytes) for item in value]
    return value


def cut_note(size: int) -> str:
    """Return the note that replaces so many bytes."""
    return f"... {amount(size)} cut ..."


def amount(size: int) -> str:
    """Return a number of bytes in a suitable unit: `49.9 MB`."""
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return plural(size, "byte")


def end_of(path: Path, most_bytes: int, since: int = 0) -> str:
    """Return the last bytes of a file, cleaned, without reading more; "" if there is no file.

    Bytes before `since` are ignored. If more bytes were left out, the first line says how many.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(since, size - most_bytes))
            data = file.read(most_bytes)
    except FileNotFoundError:
        return ""
    note = f"{cut_note(start - since)} " if start > since else ""
    return note + clean(data.decode(errors="replace"))


def last_lines(path: Path, count: int, most_bytes: int, without: str = "") -> list[str]:
    """Return at most `count` last lines of a file, of at most `most_bytes`; long lines are cut.

    `without`: a text; lines that contain it are left out.
    """
    end = end_of(path, END_BYTES).removesuffix("\n")
    kept = [line for line in end.split("\n") if not without or without not in line] if end else []
    lines = [bounded(line, MAX_LINE_BYTES) for line in kept[-count:]]
    shown = 0
    for place in range(len(lines) - 1, -1, -1):
        shown += len(lines[place].encode()) + 1
        if shown > most_bytes:
            cut = sum(len(line.encode()) + 1 for line in lines[: place + 1])
            return [cut_note(cut), *lines[place + 1 :]]
    return lines


def one_line(text: str) -> str:
    """Replace all white space, including line ends, by single blanks."""
    return " ".join(text.split())


def slug(test: str) -> str:
    """Return a file name for a test id; long ids are cut and made unique by a hash."""
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", test).strip("-.") or "test"
    if len(name) <= SLUG_LENGTH:
        return name
    return name[: SLUG_LENGTH - 9] + "-" + hashlib.sha256(test.encode()).hexdigest()[:8]


def figure(value: float | None, digits: int = 3) -> str:
    """Format a number with that many significant digits and no exponent, else return MISSING."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")  # 9.999 has two digits before the point, not one
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{decimals}f}"


def plural(count: int, noun: str) -> str:
    """Return `1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds_of(duration: str) -> float | None:
    """Return the seconds of `90`, `90s`, `1.5m` or `1h`; None for any other text."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", duration.strip())
    return float(found[1]) * SECONDS[found[2]] if found else None
