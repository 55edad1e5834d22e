"""Tests that a run lists what it could not examine of a user's program, and why."""

from __future__ import annotations

import pytest

from reports.sections import not_examined
from suite.meta import made_up_run


@pytest.mark.parametrize(("count", "note"), [(1, "1 test without"), (2, "2 tests without")])
def test_remedy_is_listed_with_its_number_of_tests(count: int, note: str):
    test = "suite/conformance/test_equivalence.py::test_a"
    entries = [{"test": test, "trainer": "train", "reason": "say equivalent = true"}] * count
    run = made_up_run.measured([], not_examined=entries)
    table = not_examined.brief(run)
    assert [row.cells for row in table.rows] == [(str(count), "say equivalent = true")]
    assert table.note.startswith(f"{note} a verdict")
