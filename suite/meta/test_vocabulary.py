"""Tests that misspelled names in `@pytest.mark.cases` and in trainer rows are errors.

Without the error, a misspelled name would deselect tests.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference_trainers import BY_NAME, TRAINERS
from suite.harness.core.errors import BadInput
from suite.harness.pytest_plugin import vocabulary
from suite.harness.pytest_plugin.parametrization import Needs
from suite.harness.tables.claims import Claims

CLAIMS = Claims.load()
ROW = BY_NAME["single_process"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"events": ("ephoc",)}, "cases(events=...): unknown name 'ephoc' (did you mean 'epoch'?)"),
        ({"flags": ("audit_input",)}, "'audit_input' (did you mean 'audit-input'?)"),
        (
            {"families": ("mwsm",)},
            "cases(families=...): unknown name 'mwsm' (did you mean 'mwms'?)",
        ),
        ({"backends": "all"}, "unknown name 'all'; choose from each, first"),
        ({"flavors": "frist"}, "unknown name 'frist' (did you mean 'first'?)"),
        (
            {"level": "observe"},
            "cases(level=...): unknown name 'observe' (did you mean 'observed'?)",
        ),
        (
            {"controls": ("epoch",)},
            "cases(controls=...): unknown name 'epoch' (did you mean 'epochs'?)",
        ),
        ({"familys": ("mwms",)}, "cases(...): unknown name 'familys' (did you mean 'families'?)"),
        ({"events": "step"}, "'step' is one string; give a tuple: ('step',)"),
    ],
)
def test_misspelled_need_is_bad_input(keywords, message):
    with pytest.raises(BadInput) as refused:
        Needs.read("test_x.py::test_y", keywords, CLAIMS)
    assert str(refused.value).startswith("test_x.py::test_y: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("field", "names", "message"),
    [
        ("events", ("stpe",), "row single_process, events: unknown name 'stpe'"),
        ("flags", ("mdoel",), "row single_process, flags: unknown name 'mdoel'"),
        ("families", ("singel",), "row single_process, families: unknown name 'singel'"),
        ("backends", ("rnig",), "row single_process, backends: unknown name 'rnig'"),
    ],
)
def test_misspelled_trainer_row_is_bad_input(field, names, message):
    with pytest.raises(BadInput, match=message):
        vocabulary.check_rows(CLAIMS, [replace(ROW, **{field: names})])


def test_all_trainer_rows_use_known_names():
    vocabulary.check_rows(CLAIMS, TRAINERS)
