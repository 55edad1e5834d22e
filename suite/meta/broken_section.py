"""A pytest plug-in (`-p suite.meta.broken_section`): a defect in one section of every report."""

from typing import Any

from reports.sections import conformance


def raise_error(_: Any) -> Any:
    raise KeyError("a bug")


conformance.matrix = raise_error
