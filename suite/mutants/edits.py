"""Edits of a text that make a mutant, and the tables that have a mutant in each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from suite.harness.core.errors import BadInput
from suite.harness.tables.toml_schema import check_keys, convert, read_toml

Row = TypeVar("Row", bound=Any)  # a dataclass with name, old and new, which have a text per edit


def read_rows(paths: Iterable[Path], kind: type[Row]) -> Iterator[tuple[Path, str, Row]]:
    """Yield the file, the place for errors, and each row; names are unique in all files.

    Raise BadInput, in one line, for a bad row.
    """
    names: set[str] = set()
    for path in paths:
        content = read_toml(path)
        check_keys(path.name, content, {"mutant": list}, ("mutant",))
        for number, values in enumerate(content["mutant"], start=1):
            where = f"{path.name}, {values.get('name') or f'row {number}'}"
            row = convert(where, values, kind)
            if len(row.old) != len(row.new):
                raise BadInput(f"{where}: old has {len(row.old)} texts, new has {len(row.new)}")
            if row.name in names:
                raise BadInput(f"{where}: the name is there twice")
            names.add(row.name)
            yield path, where, row


def edited(mutant: str, text: str, edits: Iterable[tuple[str, str]]) -> str:
    """Return the text with each (old, new) replaced. Raise ValueError if an old is not there once.

    The error names the mutant.
    """
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"mutant {mutant}: {old!r} occurs {text.count(old)} times")
        text = text.replace(old, new)
    return text
