"""Edits of a text that make a mutant."""

from __future__ import annotations

from collections.abc import Iterable


def edited(mutant: str, text: str, edits: Iterable[tuple[str, str]]) -> str:
    """Return the text with each (old, new) replaced. Raise ValueError if an old is not there once.

    The error names the mutant.
    """
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"mutant {mutant}: {old!r} occurs {text.count(old)} times")
        text = text.replace(old, new)
    return text
