"""Tests that outside connections to leased ports are not blamed on TensorFlow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reports.core.verdicts import HARNESS_ERROR
from suite.harness.cluster import addresses as network
from suite.harness.cluster import connections
from suite.harness.cluster.addresses import LEASED_PORTS, NAMESPACE, Network
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.connections import CLOSE_WAIT, ESTABLISHED, End, PortWatch
from suite.harness.cluster.launcher import Engine
from suite.harness.core.deadlines import wait_until
from suite.harness.core.errors import HarnessError
from suite.harness.tables import verdicts
from suite.meta import fakes

LEASED = Network(LEASED_PORTS, "for this test")
ELSEWHERE = "203.0.113.7"  # an address for documentation (RFC 5737)

# Tasks that connect to each other, as TensorFlow's do, and report when they are connected.
CONNECTED = """
import json, os, signal, socket, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, workers = config["task"]["index"], config["cluster"]["worker"]
addresses = [(host, int(port)) for host, port in (a.split(":") for a in workers)]
def say(event):
    with open(os.environ["TRAINER_EVENTS"], "a") as file:
        data = {"event": event, "time_s": time.monotonic(), "task": "worker/%d" % index}
        file.write(json.dumps(dict(data, attempt=int(os.environ["TRAINER_ATTEMPT"]))) + "\\n")
server = socket.create_server(addresses[index])
say("listening")
"""
WAITS = CONNECTED + "signal.pause()\n"
ENDS_OF_IT = CONNECTED + "peer = server.accept()[0]; peer.recv(1); sys.exit('broken by a peer')\n"
RECONNECTS = (
    CONNECTED
    + """
server.setblocking(False)
peers = {}
while True:
    for number, address in enumerate(addresses):
        try:
            peers[number] = socket.create_connection(address)
        except OSError:
            pass
    try:
        peers[len(addresses)] = server.accept()[0]
    except OSError:
        pass
    subprocess.run([sys.executable, "-S", "-c",
                    "import _socket; s = _socket.socket(); s.connect(%r)" % (addresses[index],)])
    say("step")
"""
)


@pytest.fixture
def engine(fake_engine: Engine, tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on leased ports without firewall rules."""
    made = replace(fake_engine, network=LEASED, zygotes={}, directory=tmp_path)
    yield made
    made.stop()


def launch(engine: Engine, tmp_path: Path, program: str, workers: int = 1) -> Cluster:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    trainer = fakes.bare(path, (("worker", workers),))
    return engine.launch(trainer, backend="none", keras="none")


def port_of(cluster: Cluster, task: str = "worker/0") -> int:
    return int(cluster.plan.addresses[task].split(":")[1])


def test_foreign_connection_is_harness_error(engine, tmp_path):
    """The connection is from this process, which has the same user and is outside the cluster."""
    with launch(engine, tmp_path, WAITS) as cluster:
        cluster.start()
        cluster.wait_for("listening")
        port = port_of(cluster)
        with (
            socket.create_connection(("127.0.0.1", port)),
            pytest.raises(HarnessError) as caught,
        ):
            cluster.wait_for("step", within_s=30)
    expected = f"another program (uid {os.geteuid()}, pid {os.getpid()}) is connected to port "
    assert str(caught.value) == f"{expected}{port} of worker/0"
    assert verdicts.decide(caught.value).verdict == HARNESS_ERROR


def test_failure_after_foreign_connection_is_harness_error(engine, tmp_path):
    """This includes a task that the connection ended before the next scan."""
    with launch(engine, tmp_path, ENDS_OF_IT) as cluster:
        assert cluster.watch
        cluster.watch.next_s = float("inf")
        cluster.start()
        cluster.wait_for("listening")
        with socket.create_connection(("127.0.0.1", port_of(cluster))) as client:
            client.sendall(b"x")
            with pytest.raises(HarnessError, match="is connected to port"):
                cluster.complete()


@pytest.mark.skipif(os.geteuid() != 0, reason="a second user needs root")
def test_other_user_is_harness_error_by_uid(engine, tmp_path):
    with launch(engine, tmp_path, WAITS) as cluster:
        cluster.start()
        cluster.wait_for("listening")
        code = (
            "import os, socket, sys; client = socket.socket(); os.setuid(65534);"
            f"client = socket.create_connection(('127.0.0.1', {port_of(cluster)}));"
            "print('connected', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", f"import encodings.idna; {code}"]
        with subprocess.Popen(command, stdin=-1, stdout=-1) as other:
            assert other.stdout
            assert other.stdout.readline() == b"connected\n"
            with pytest.raises(HarnessError, match=rf"\(uid 65534, pid {other.pid}\)"):
                cluster.wait_for("step", within_s=30)


def test_own_connections_raise_no_alarm(engine, tmp_path, monkeypatch):
    """Scan often, with connections of tasks, of their children and of tasks that were killed."""
    monkeypatch.setattr(connections, "MAX_CPU_SHARE", 1.0)
    monkeypatch.setattr(connections, "MIN_INTERVAL_S", 0.0)
    with launch(engine, tmp_path, RECONNECTS, workers=2) as cluster:
        cluster.start()
        for attempt in range(3):
            for task in cluster.tasks:
                cluster.wait_for("step", task, attempt=attempt, at_least=3)
            for task in cluster.tasks:
                cluster.signal(task, signal.SIGKILL)
            cluster.wait_exit(*cluster.tasks)
            cluster.start()
        assert cluster.watch
        assert cluster.watch.own


def test_connection_from_another_machine_is_foreign(monkeypatch):
    watch = PortWatch({"worker/0": "127.0.0.1:2222"})
    here = End("127.0.0.1", 2222, ELSEWHERE, 50_000, 0, 0)
    monkeypatch.setattr(connections, "table", lambda _: iter([here]))
    with pytest.raises(HarnessError, match=f"at {ELSEWHERE} is connected to port 2222"):
        watch.look(os.getpid())


@pytest.mark.parametrize(
    "end",
    [
        End("127.0.0.1", 50_000, "127.0.0.1", 2223, 0, 7),  # another port
        End("127.0.0.1", 50_000, ELSEWHERE, 2222, 0, 7),  # another machine's port
        End("127.0.0.1", 50_000, "127.0.0.1", 2222, 0, 0),  # closed by its process
        End("127.0.0.1", 2222, "127.0.0.1", 50_000, 0, 7),  # the task's own end
    ],
)
def test_connections_of_no_concern_raise_no_alarm(monkeypatch, end: End):
    monkeypatch.setattr(connections, "table", lambda _: iter([end]))
    PortWatch({"worker/0": "127.0.0.1:2222"}).look(os.getpid(), now=True)


def test_socket_of_an_ending_process_raises_no_alarm(monkeypatch):
    """An ending process holds sockets that it no longer lists."""
    end = End("127.0.0.1", 50_000, "127.0.0.1", 2222, os.geteuid(), 7)
    monkeypatch.setattr(connections, "table", lambda _: iter([end]))
    monkeypatch.setattr(connections, "sockets", lambda _: None)
    watch = PortWatch({"worker/0": "127.0.0.1:2222"})
    watch.look(os.getpid())
    monkeypatch.setattr(connections, "sockets", lambda _: set())
    with pytest.raises(HarnessError):
        watch.look(os.getpid(), now=True)


def test_connection_seen_once_raises_no_alarm(monkeypatch):
    """The connection was closed during the search for its owner."""
    end = End("127.0.0.1", 50_000, "127.0.0.1", 2222, os.geteuid() + 1, 7)
    tables = iter([[end], []])
    monkeypatch.setattr(connections, "table", lambda _: iter(next(tables)))
    PortWatch({"worker/0": "127.0.0.1:2222"}).look(os.getpid())


def test_zombie_and_missing_process_have_no_sockets():
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    wait_until("a zombie", lambda: connections._is_dead(child.pid), 30)
    assert connections.sockets(child.pid) == set()
    child.wait()
    assert connections.sockets(child.pid) == set()


@pytest.mark.skipif(sys.byteorder != "little", reason="tables of little-endian machines")
def test_tables_of_both_families_are_read(monkeypatch, tmp_path):
    row = "   0: {} {} {} 00000000:00000000 00:00000000 00000000  {}  0 {} 1 0 20 4 30 10 -1"
    loopback, mapped = "0100007F", "0000000000000000FFFF00000100007F"
    lines = {
        "tcp": [
            row.format(f"{loopback}:C350", f"{loopback}:08AE", ESTABLISHED, 1000, 7),
            row.format(f"{loopback}:C351", f"{loopback}:08AE", "06", 0, 0),
        ],
        "tcp6": [
            row.format(f"{mapped}:08AE", f"{mapped}:C350", CLOSE_WAIT, 0, 8),
            row.format(
                f"{'0' * 24}01000000:08AE", f"B80D0120{'0' * 16}01000000:C352", ESTABLISHED, 0, 9
            ),
        ],
    }
    for name, rows in lines.items():
        (tmp_path / name).write_text("\n".join(["  sl  local_address ...", *rows]))
    paths = (tmp_path / "tcp", tmp_path / "tcp6", tmp_path / "missing")
    monkeypatch.setattr(connections, "TABLES", paths)
    assert list(connections.table({2222})) == [
        End("127.0.0.1", 50_000, "127.0.0.1", 2222, 1000, 7),
        End("127.0.0.1", 2222, "127.0.0.1", 50_000, 0, 8),
        End("::1", 2222, "2001:db8::1", 50_002, 0, 9),
    ]


def test_connections_watched_only_on_leased_ports(monkeypatch):
    addresses = {"worker/0": "127.0.0.1:2222"}
    assert Network(NAMESPACE, "for this test").watch(addresses) is None
    assert LEASED.watch(addresses)
    monkeypatch.setattr(network.connections, "is_reliable", lambda: False)
    assert LEASED.watch(addresses) is None


def test_tables_without_owners_are_not_relied_on(monkeypatch):
    """In a sandbox with such tables, every connection would seem foreign."""
    assert connections.is_reliable.__wrapped__()
    whole = connections.table

    def without_owners(ports: set[int]) -> Iterator[End]:
        return (end._replace(inode=0) for end in whole(ports))

    monkeypatch.setattr(connections, "table", without_owners)
    assert not connections.is_reliable.__wrapped__()
