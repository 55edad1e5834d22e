"""Tests that a mesh client reads its role from DTENSOR_* and refuses inconsistent values."""

from __future__ import annotations

import pytest

from reference_trainers.support.roles import ALONE, role_from_dtensor
from reference_trainers.support.workload import BadInput
from suite.harness.core.topology import ROLE_VARIABLES, Topology

CLIENTS = Topology((("worker", 2),))
ADDRESSES = {"worker/0": "localhost:1", "worker/1": "localhost:2"}


@pytest.fixture
def set_role(monkeypatch: pytest.MonkeyPatch):
    """Return `set_role(**changes)`, which sets worker/1's variables, changed; None unsets one."""

    def set_variables(**changes: str | None) -> None:
        for name in ROLE_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        given = {**CLIENTS.environment("dtensor", "worker/1", ADDRESSES), **changes}
        for name, value in given.items():
            if value is not None:
                monkeypatch.setenv(name, value)

    return set_variables


def test_client_reads_its_role(set_role):
    set_role()
    role = role_from_dtensor()
    assert (role.task, role.index, role.chief) == ("worker/1", 1, False)
    assert (role.workers, role.cluster) == (CLIENTS.tasks, {"worker": list(ADDRESSES.values())})


def test_without_addresses_it_is_alone(set_role):
    set_role(DTENSOR_JOBS=None)
    assert role_from_dtensor() == ALONE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DTENSOR_CLIENT_ID": "one"}, "DTENSOR_CLIENT_ID is not a whole number: 'one'"),
        ({"DTENSOR_CLIENT_ID": "-1"}, "DTENSOR_CLIENT_ID is not a whole number: '-1'"),
        ({"DTENSOR_CLIENT_ID": "2"}, "DTENSOR_CLIENT_ID 2 do not fit"),
        ({"DTENSOR_NUM_CLIENTS": "3"}, "has 2 addresses; DTENSOR_NUM_CLIENTS 3"),
        ({"DTENSOR_JOBS": ""}, "DTENSOR_JOBS has 0 addresses"),
    ],
)
def test_inconsistent_role_is_refused_in_one_line(set_role, changes, message):
    set_role(**changes)
    with pytest.raises(BadInput, match=message) as refused:
        role_from_dtensor()
    assert "\n" not in str(refused.value)
