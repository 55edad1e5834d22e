"""Shared parts of the suite's TOML tables: strict keys, and predicates on versions.

A malformed table must not be read as an empty one: an unknown key, a misspelled name or an invalid
specifier raises BadInput, in one line that names the row.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from suite.harness.core.errors import BadInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

FLAVORS = ("keras2", "tf_keras", "keras3")
NO_KERAS = "none"  # the label of a trainer without Keras


def read_toml(path: Path) -> dict[str, Any]:
    """Return the file's content; raise BadInput if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name as the end of a message; "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def version_in(version: str, specifier: str) -> bool:
    """Return True if a version satisfies a PEP 440 specifier; "" accepts all, nightlies count."""
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion) as error:
        raise BadInput(f"not a version or specifier: {error}") from error


def keras_in(label: str, predicate: str) -> bool:
    """Return True if a label ("tf_keras 2.21.0", or "none") satisfies a predicate.

    A predicate is one or more alternatives joined by `|`. Each is a flavor (keras2, tf_keras,
    keras3), optionally with a PEP 440 specifier: "keras3", "keras3 >=3.4,<3.9", "keras2|tf_keras".
    "" accepts all, and is the only predicate that a trainer without Keras satisfies.
    """
    alternatives = _alternatives(predicate)
    flavor, _, version = label.partition(" ")
    if not alternatives or flavor == NO_KERAS:
        return not alternatives
    if flavor not in FLAVORS or not version:
        raise BadInput(f"not a Keras label: {label!r}; it reads like 'tf_keras 2.21.0'")
    return any(flavor == name and version_in(version, spec) for name, spec in alternatives)


def _alternatives(predicate: str) -> list[tuple[str, str]]:
    found = []
    for part in predicate.split("|") if predicate.strip() else ():
        name = next((f for f in FLAVORS if part.strip().startswith(f)), None)
        if name is None:
            raise BadInput(f"not a Keras flavor: {part.strip()!r}; it is {', '.join(FLAVORS)}")
        found.append((name, part.strip()[len(name) :].strip()))
    return found


def check_predicates(where: str, row: Mapping[str, Any]) -> None:
    """Raise BadInput if the row's `tensorflow` or `keras` is not a valid predicate."""
    try:
        version_in("2.0", row.get("tensorflow", ""))
        for _, specifier in _alternatives(row.get("keras", "")):
            version_in("2.0", specifier)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def check_url(where: str, url: str) -> None:
    """Raise BadInput unless the URL is an https address without spaces."""
    if not url.startswith("https://") or " " in url:
        raise BadInput(f"{where}: url must be an https address, not {url!r}")
