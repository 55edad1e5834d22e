"""Tests of suite.harness.cluster.addresses: no two clusters ever share an address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from suite.harness.cluster import addresses as network
from suite.harness.cluster.addresses import (
    Network,
    PortLeases,
    addresses,
    candidates,
    is_free,
    probe,
)
from suite.harness.core.errors import HarnessError

TRY_TO_LEASE = """
import sys
from pathlib import Path
from suite.harness.cluster.addresses import PortLeases
leases = PortLeases(Path(sys.argv[1]))
print([port for port in map(int, sys.argv[2:]) if leases._take(port)])
"""


@pytest.fixture
def leases(tmp_path: Path):
    leases = PortLeases(tmp_path)
    yield leases
    leases.release()


def fake_python(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_probe_says_what_is_used_and_why():
    found = probe()
    assert found.kind in ("namespace", "leased-ports")
    assert found.reason
    assert "\n" not in found.reason


def test_forbidden_namespace_means_leased_ports_with_a_reason(tmp_path: Path):
    python = fake_python(tmp_path, "echo 'unshare: Operation not permitted' >&2; exit 1")
    found = probe(python)
    assert found.kind == "leased-ports"
    assert found.reason.endswith("unshare: Operation not permitted")


def test_an_interpreter_that_cannot_start_means_leased_ports(tmp_path: Path):
    assert probe(str(tmp_path / "none")).kind == "leased-ports"


@pytest.mark.skipif(
    probe().kind != "namespace", reason=f"{probe().reason} (see user_namespaces(7))"
)
def test_the_probe_leaves_this_process_where_it_was():
    before = os.readlink("/proc/self/ns/net")
    probe.__wrapped__()
    assert os.readlink("/proc/self/ns/net") == before


def test_private_addresses_start_at_the_documented_port():
    assert addresses(["ps/0", "worker/0"]) == {
        "ps/0": "127.0.0.1:2222",
        "worker/0": "127.0.0.1:2223",
    }


def test_addresses_on_leased_ports_are_in_the_order_of_the_tasks():
    assert addresses(["a/0", "a/1"], [7000, 5000]) == {
        "a/0": "127.0.0.1:7000",
        "a/1": "127.0.0.1:5000",
    }


def test_too_few_ports_are_a_mistake():
    with pytest.raises(ValueError, match="zip"):
        addresses(["a/0", "a/1"], [7000])


@pytest.mark.parametrize(
    ("ephemeral", "lowest", "highest"),
    [
        ("32768\t60999\n", 10_000, 32_767),
        ("1024 40000", 40_001, 65_535),
        ("10500 60999", 61_000, 65_535),
        ("nonsense", 10_000, 32_767),
    ],
)
def test_leased_ports_lie_outside_the_kernel_s_own_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ephemeral: str, lowest: int, highest: int
):
    path = tmp_path / "range"
    path.write_text(ephemeral)
    monkeypatch.setattr(network, "EPHEMERAL", path)
    assert (candidates()[0], candidates()[-1]) == (lowest, highest)


def test_leased_ports_are_distinct_and_free(leases: PortLeases):
    first, second = leases.lease(5), leases.lease(5)
    assert len({*first, *second}) == 10
    assert all(is_free(port) for port in first)
    assert set(first) <= set(candidates())


def test_another_process_cannot_lease_the_same_ports(leases: PortLeases, tmp_path: Path):
    ports = leases.lease(2)
    leases.release(ports[1:])
    tried = subprocess.run(
        [sys.executable, "-c", TRY_TO_LEASE, tmp_path, *map(str, ports)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert tried.stdout.strip() == str(list(ports[1:]))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_in_use_is_not_leased(leases: PortLeases, family: socket.AddressFamily):
    (port,) = leases.lease(1)
    leases.release()
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((network.FAMILIES[family], port))
        server.listen(1)
        assert not is_free(port)
        assert not leases._take(port)
    assert leases._take(port)


def test_clusters_have_equal_addresses_in_private_networks():
    private = Network("namespace", "tested")
    first, release = private.addresses(["worker/0", "worker/1"])
    assert first == private.addresses(["worker/0", "worker/1"])[0]
    release()


def test_clusters_on_leased_ports_share_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    leased = Network("leased-ports", "tested")
    first, release_first = leased.addresses(["worker/0", "worker/1"])
    second, release_second = leased.addresses(["worker/0", "worker/1"])
    assert not {*first.values()} & {*second.values()}
    release_first()
    release_second()


def test_released_ports_can_be_leased_again(leases: PortLeases):
    (port,) = leases.lease(1)
    leases.release()
    assert leases.held == {}
    assert leases._take(port)


def test_too_few_free_ports_give_back_what_was_taken(
    leases: PortLeases, monkeypatch: pytest.MonkeyPatch
):
    ports = leases.lease(2)
    leases.release()
    monkeypatch.setattr(network, "candidates", lambda: ports)
    with pytest.raises(HarnessError, match="3 free ports were wanted"):
        leases.lease(3)
    assert leases.held == {}
    assert sorted(leases.lease(2)) == sorted(ports)


def test_leases_are_kept_in_a_private_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    path = network.lock_directory()
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o755)
    with pytest.raises(HarnessError, match="not this user's alone"):
        network.lock_directory()


def test_a_link_in_place_of_the_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / f"tf-distribute-conformance-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(HarnessError, match="not this user's alone"):
        network.lock_directory()
