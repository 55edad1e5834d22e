"""Tests of the cases of a test: those of the rows that meet its needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference_trainers import BY_NAME
from suite.harness.core.settings import Settings
from suite.harness.pytest_plugin.parametrization import Needs, select

LOOP = BY_NAME["custom_loop_multi_worker_mirrored"]
SERVERS = BY_NAME["supervisor_parameter_server"]
NOTHING = Settings(seed=1)  # asked for


@pytest.mark.parametrize(
    ("flavors", "full", "expected"),
    [
        ("each", False, ["tf_keras", "keras3"]),
        ("first", True, ["tf_keras"]),
        ("full", False, ["tf_keras"]),
        ("full", True, ["tf_keras", "keras3"]),
    ],
)
def test_keras_flavors_as_the_test_and_the_run_have_time_for(flavors, full, expected):
    found = select(
        Needs(flavors=flavors), replace(NOTHING, full=full), ["tf_keras", "keras3"], [LOOP]
    )
    assert [case.keras for case in found] == expected


def test_a_row_without_keras_is_one_case():
    found = select(Needs(), NOTHING, ["tf_keras", "keras3"], [SERVERS])
    assert [(case.backend, case.keras) for case in found] == [("none", "none")]


@pytest.mark.parametrize(("backends", "count"), [("first", 1), ("each", len(LOOP.backends))])
def test_backends_as_the_test_needs_them(backends, count):
    assert len(select(Needs(backends=backends), NOTHING, ["tf_keras"], [LOOP])) == count


def test_only_what_was_asked_for():
    asked = replace(NOTHING, trainers=(LOOP.name,), backends=("ring",))
    (case,) = select(Needs(backends="each"), asked, ["tf_keras"], [LOOP, SERVERS])
    assert (case.trainer, case.backend) == (LOOP, "ring")
