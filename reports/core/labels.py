"""Names of approaches and properties, as reports print them."""

from __future__ import annotations

from pathlib import PurePosixPath

from reports.core import text

SEPARATOR = " · "
NO_KERAS = "none"  # of an approach or a version without Keras
# The test whose scenarios are the reproductions, each under the name of its finding. The rows of a
# finding apply to it, for their versions: seeing the deviation is then the expected result.
REPRODUCTION_TEST = "test_reproduction_agrees_with_its_row"
SAVED_BY = "saved by "  # begins the variant of a test that loads a file of another version
OTHER_VERSIONS = "other versions"  # the property of these tests and of those that save the files


def approach(trainer: str, keras: str) -> str:
    """Return the trainer and, if there is one, its Keras flavor."""
    name = trainer or "no trainer"
    return name if keras in ("", NO_KERAS) else name + SEPARATOR + keras


def of_versions(tensorflow: str, keras: str) -> str:
    """Return the name of files of these versions: `2.15.1-keras2-2.15.0`, or `2.15.1`."""
    return text.slug(tensorflow if keras == NO_KERAS else f"{tensorflow} {keras}")


def property_of(test: str) -> str:
    """Return the property that a test id belongs to: the name of its file, in words."""
    stem = PurePosixPath(test.split("::")[0]).stem
    return stem.removeprefix("test_").replace("_", " ") or test


def short_name(test: str) -> str:
    """Return a test id without its file."""
    return test.split("::", 1)[-1]
