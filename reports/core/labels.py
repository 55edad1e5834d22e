"""Names of approaches and properties, as reports print them."""

from __future__ import annotations

from pathlib import PurePosixPath

SEPARATOR = " · "


def approach(trainer: str, keras: str) -> str:
    """A trainer and, where it makes a difference, the Keras flavour."""
    name = trainer or "no trainer"
    return name if keras in ("", "none") else name + SEPARATOR + keras


def property_of(test: str) -> str:
    """The property that a test id belongs to: its file's name, in words."""
    stem = PurePosixPath(test.split("::")[0]).stem
    return stem.removeprefix("test_").replace("_", " ") or test


def short_name(test: str) -> str:
    """A test id without its file."""
    return test.split("::", 1)[-1]
