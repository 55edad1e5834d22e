"""Arguments of a user's program with names in braces: `--epochs={epochs}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any


def placeholders(template: str) -> set[str]:
    """Return the names in braces of an argument; `{{` is a brace. Raise ValueError if malformed."""
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def flag_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the flags of the suite that placeholders stand for: with dashes."""
    return tuple(name.replace("_", "-") for name in names)


def fill_in(templates: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Return the arguments with `{steps_per_epoch}` etc. replaced by the values of these flags.

    Raise KeyError if a value is not given.
    """
    values = {name.replace("-", "_"): value for name, value in given.items()}
    return [template.format_map(values) for template in templates]
