"""Read the suite's TOML tables, whose rows are dataclasses.

A malformed table must not be read as an empty one: an unknown key, a misspelled name or an invalid
specifier raises BadInput, in one line that names the row.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from reports.core import toml
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import keras_alternatives, version_in

Row = TypeVar("Row")
# Annotation of a field -> type of its value in TOML.
KINDS: Mapping[str, type] = {
    "str": str,
    "bool": bool,
    "bool | None": bool,
    "int | None": int,
    "tuple[str, ...]": list,
}
KEY = "key"  # in a field's metadata: the key in TOML, if that is no Python name


def read_toml(path: Path) -> dict[str, Any]:
    """Return the file's content; raise BadInput if it cannot be read or is not TOML."""
    try:
        return toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from error


def check_keys(
    where: str, row: Mapping[str, Any], kinds: Mapping[str, type], required: Sequence[str]
) -> None:
    """Raise BadInput for a key that is unknown, missing or of a type other than in `kinds`."""
    for key, value in row.items():
        if key not in kinds:
            raise BadInput(f"{where}: unknown key {key!r}{did_you_mean(key, kinds)}")
        if not isinstance(value, kinds[key]):
            raise BadInput(f"{where}: {key} must be a {kinds[key].__name__}, not {value!r}")
    for key in required:
        if not row.get(key):
            raise BadInput(f"{where}: {key} is missing")


def convert(where: str, values: Mapping[str, Any], kind: type[Row]) -> Row:
    """Return the row as the dataclass `kind`; raise BadInput if a key or a value does not fit.

    The fields define the keys and the types of their values. A field without a default is required.
    """
    known = {f.metadata.get(KEY, f.name): f for f in fields(kind)}  # type: ignore[arg-type]
    required = [key for key, f in known.items() if f.default is MISSING]
    check_keys(where, values, {key: KINDS[str(f.type)] for key, f in known.items()}, required)
    for key, value in values.items():
        if isinstance(value, list) and not all(isinstance(name, str) for name in value):
            raise BadInput(f"{where}: {key} must be a list of strings, not {value!r}")
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    return kind(**{known[key].name: value for key, value in plain.items()})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name as the end of a message; "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_predicates(where: str, versions: Iterable[str], keras: str) -> None:
    """Raise BadInput unless all are valid predicates on a version; `keras`: on a Keras."""
    try:
        for specifier in versions:
            version_in("2.0", specifier)
        for _, specifier in keras_alternatives(keras):
            version_in("2.0", specifier)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def check_url(where: str, url: str) -> None:
    """Raise BadInput unless the URL is an https address without spaces."""
    if not url.startswith("https://") or " " in url:
        raise BadInput(f"{where}: url must be an https address, not {url!r}")
