"""Options that several commands share or that need a parser of their own."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from reports.core.text import seconds_of
from reports.stats.ratio_tests import FLOOR
from reports.stats.run_levels import DRIFT, RUNS_ENOUGH

Option = tuple[tuple[str, ...], dict[str, Any]]  # arguments of add_argument


def formats(*names: str) -> Option:
    """Return the option `--format` with these choices; the first is the default."""
    settings = {"choices": names, "default": names[0], "help": f"default: {names[0]}"}
    return ("--format",), settings


def percent(most: float) -> Callable[[str], float]:
    """Return a parser of a percentage from 0 to `most`, as a fraction (`2` or `2%`: 0.02)."""

    def read(written: str) -> float:
        try:
            value = float(written.removesuffix("%"))
        except ValueError:
            value = math.nan
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{written!r} is not a percentage from 0 to {most:g}, such as {most / 2:g}"
            )
        return value / 100

    return read


def duration(least_s: float, most_s: float) -> Callable[[str], float]:
    """Return a parser of a duration in seconds: `90`, `90s`, `1.5m` or `1h`."""

    def read(written: str) -> float:
        seconds = seconds_of(written)
        if seconds is None or not least_s <= seconds <= most_s:
            raise argparse.ArgumentTypeError(
                f"{written!r} is not a duration from {least_s:g}s to {most_s:g}s, such as "
                "90s or 10m"
            )
        return seconds

    return read


STRICT: Option = (
    ("--strict",),
    {"action": "store_true", "help": "exit code 3 if an answer is cannot tell"},
)
GATE: tuple[Option, ...] = (
    (
        ("--verdicts",),
        {"action": "store_true", "help": "compare only verdicts, for runs without timings (-n)"},
    ),
    (
        ("--confirm",),
        {"metavar": "RUN_DIR", "help": "second measurement of NEW: a change must be in both"},
    ),
    (
        ("--floor",),
        {
            "type": percent(100 * FLOOR),
            "default": FLOOR,
            "metavar": "PERCENT",
            "help": f"smallest change that counts; maximum and default: {100 * FLOOR:g}",
        },
    ),
    (
        ("--drift",),
        {
            "type": percent(100),
            "metavar": "PERCENT",
            "help": "standard deviation between the levels of runs that are hours apart; "
            f"default: estimated from {RUNS_ENOUGH} or more runs in BASE, else {100 * DRIFT:g}",
        },
    ),
    STRICT,
    formats("text", "md", "json"),
)
