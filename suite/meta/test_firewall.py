"""Tests that leased ports are closed to other users, or that the user is warned.

They are closed as long as their cluster runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from suite.benchmarks import startup_ways
from suite.harness.cluster import addresses, firewall
from suite.harness.cluster.addresses import LEASED_PORTS, NAMESPACE, Network, PortLeases
from suite.harness.cluster.firewall import IPTABLES, NFTABLES, Firewall
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.paths import ROOT
from suite.harness.scenarios import small_programs

CONNECTED, REFUSED = ["connected"] * 2, ["Connection refused"] * 2
LEASED = Network(LEASED_PORTS, "for this test")
TOOLS = {NFTABLES: ["nft"], IPTABLES: ["iptables", "ip6tables"]}


def in_own_network(tool: str) -> list[str]:
    """Return the first words of a command that sets rules in its own network namespace.

    The machine's other programs are not affected by the rules.
    """
    if os.geteuid():
        pytest.skip("firewall rules and a second user need root")
    missing = [name for name in TOOLS[tool] if not shutil.which(name, path=firewall.SYSTEM_PATH)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    own = ["unshare", "--net"]
    tried = subprocess.run([*own, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"root has no rights here: {tried.stderr.strip()}")
    return own


@pytest.mark.parametrize("tool", TOOLS)
def test_ports_closed_to_another_user_until_released(tool: str):
    """Ports are released in order, and by the death of the process that held them."""
    tried = subprocess.run(
        [*in_own_network(tool), sys.executable, "-m", "suite.meta.closed_ports", tool],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert tried.returncode == 0, tried.stderr
    seen = json.loads(tried.stdout)
    for when in ("before", "closed", "over", "held", "killed"):
        closed = when in ("closed", "held")
        assert seen[f"{when}: own"] == CONNECTED
        assert seen[f"{when}: other"] == (REFUSED if closed else CONNECTED), when
        assert seen[f"{when}: rules"] is closed, when


def fake_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Replace nft, iptables and ip6tables by scripts; without a script they have no rights."""
    for name in ("nft", "iptables", "ip6tables"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{scripts.get(name, 'echo not permitted >&2; exit 1')}\n")
        path.chmod(0o755)
    monkeypatch.setattr(firewall, "SYSTEM_PATH", f"{tmp_path}:{os.environ['PATH']}")


NFT_WORKS = """echo '{"nftables": []}'; exec cat"""


@pytest.mark.parametrize(
    ("scripts", "tool"),
    [
        ({"nft": NFT_WORKS}, NFTABLES),
        ({"iptables": "exit 0", "ip6tables": "exit 0"}, IPTABLES),
        ({}, ""),
    ],
)
def test_tool_found_by_trying(tmp_path, monkeypatch, scripts, tool):
    fake_tools(tmp_path, monkeypatch, **scripts)
    found = LEASED.with_closed_ports("tested")
    assert found.firewall == tool
    assert found.open_ports is (tool == "")
    if not tool:
        assert found.why_open == "nftables: not permitted; iptables: not permitted"


def test_private_networks_need_no_firewall(tmp_path, monkeypatch):
    fake_tools(tmp_path, monkeypatch, nft=NFT_WORKS)
    private = Network(NAMESPACE, "for this test")
    assert private.with_closed_ports("tested") == private
    assert not private.warning


def test_iptables_rules_removed_when_one_cannot_be_set(tmp_path, monkeypatch):
    """A host without rights over IPv6 behaves like this: a half-closed port is open."""
    log = tmp_path / "log"
    fake_tools(tmp_path, monkeypatch, iptables=f'echo "$2 $3" >>{log}', ip6tables="exit 3")
    monkeypatch.setattr(firewall, "IPTABLES_RULES", tmp_path / "rules.py")
    rules = (ROOT / "suite" / "harness" / "task_side" / "iptables_rules.py").read_text()
    (tmp_path / "rules.py").write_text(rules.replace('"/proc/net/if_inet6"', '"/proc/self/comm"'))
    with pytest.raises(HarnessError, match="iptables: ip6tables"):
        Firewall(IPTABLES, "tested", [2222])
    chain = "tfdc_tested_2222"
    removed = ["-D OUTPUT", "-D INPUT", f"-F {chain}", f"-X {chain}"]
    assert log.read_text().splitlines()[-4:] == removed


def test_firewall_that_ended_early_is_harness_error(tmp_path, monkeypatch):
    fake_tools(tmp_path, monkeypatch, nft=NFT_WORKS)
    closed = Firewall(NFTABLES, "tested", [2222])
    closed.process.kill()
    closed.process.wait()
    with pytest.raises(HarnessError, match="nftables ended by itself"):
        closed.close()


def test_leases_released_when_ports_cannot_be_closed(tmp_path, monkeypatch):
    """Neither leases nor processes remain, and no cluster runs on open ports unnoticed."""
    fake_tools(tmp_path, monkeypatch)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (port, *_) = addresses.candidates()
    monkeypatch.setattr(addresses, "candidates", lambda: [port])
    with pytest.raises(HarnessError, match="nftables: not permitted"):
        replace(LEASED, firewall=NFTABLES).addresses(["worker/0"], session="tested")
    assert PortLeases().lease(1) == (port,)


@pytest.mark.parametrize(
    "program", [startup_ways.warm_runner, small_programs.local_server, small_programs.many_runs]
)
@pytest.mark.parametrize("tool", ["", NFTABLES])
def test_program_that_picks_its_ports_needs_namespaces(program, tool: str):
    """No rule closes these ports, and their connections are not checked."""
    engine = SimpleNamespace(network=replace(LEASED, firewall=tool), python="/no/python")
    with pytest.raises(Unsupported, match="needs namespaces"), ExitStack() as stack:
        stack.enter_context(program(SimpleNamespace(engine=engine)))
