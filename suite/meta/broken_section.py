"""Inject a defect into one section of every report, as a pytest plug-in.

Load it with `-p suite.meta.broken_section`.
"""

from typing import Any

from reports.sections import conformance


def raise_error(_: Any) -> Any:
    raise KeyError("a bug")


conformance.matrix = raise_error
