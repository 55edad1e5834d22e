"""Predicates on the versions of TensorFlow and Keras, and the names of the Keras flavors."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from suite.harness.core.errors import BadInput

FLAVORS = ("keras2", "tf_keras", "keras3")
NO_KERAS = "none"  # the label of a trainer without Keras


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
    alternatives = keras_alternatives(predicate)
    flavor, _, version = label.partition(" ")
    if not alternatives or flavor == NO_KERAS:
        return not alternatives
    if flavor not in FLAVORS or not version:
        raise BadInput(f"not a Keras label: {label!r}; it reads like 'tf_keras 2.21.0'")
    return any(flavor == name and version_in(version, spec) for name, spec in alternatives)


def keras_alternatives(predicate: str) -> list[tuple[str, str]]:
    """Return (flavor, specifier) for each alternative; raise BadInput if one is invalid."""
    found = []
    for part in predicate.split("|") if predicate.strip() else ():
        name = next((f for f in FLAVORS if part.strip().startswith(f)), None)
        if name is None:
            raise BadInput(f"not a Keras flavor: {part.strip()!r}; it is {', '.join(FLAVORS)}")
        found.append((name, part.strip()[len(name) :].strip()))
    return found
