"""Tests of a cluster's own hosts and disks: its tasks see what is done to a link or a disk."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reference_trainers import Trainer
from suite.benchmarks.collective_runs import linked, streamed
from suite.harness.checks.link_limits import fastest, link_is_as_fast_as_asked
from suite.harness.cluster import addresses as network
from suite.harness.cluster import leaks, virtual_hosts
from suite.harness.cluster.cluster import Cluster
from suite.harness.cluster.launcher import Engine
from suite.harness.core.errors import HarnessError, Unsupported
from suite.harness.core.history import Event, Run
from suite.harness.core.link_rates import RATES
from suite.harness.core.paths import ROOT
from suite.harness.metrics.collective_bandwidth import Limits, limits
from suite.meta import fakes

ISOLATED = network.probe().kind == network.NAMESPACE
needs_namespaces = pytest.mark.skipif(not ISOLATED, reason="this kernel allows no namespaces")

SAY = """
import errno, json, os, select, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
addresses = [a.split(":") for a in config["cluster"]["worker"]]
addresses = [(host, int(port)) for host, port in addresses]
def say(event, **data):
    with open(os.environ["TRAINER_EVENTS"], "a") as file:
        data.update(event=event, time_s=time.monotonic(), task="worker/%d" % index, attempt=0)
        file.write(json.dumps(data) + "\\n")
"""
# Datagrams are not retransmitted: each of two tasks sends one every few milliseconds.
CHATTER = """
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(addresses[index])
sent = 0
while True:
    try:
        own.sendto(b"%d" % sent, addresses[1 - index])
    except OSError as error:
        pass  # a link that is cut may say so
    sent += 1
    say("sent", number=sent)
    while select.select([own], [], [], 0.005)[0]:
        say("got", number=int(own.recv(64)))
"""
BULK = """
size = 512 * 1024
if index == 0:
    with socket.create_server(addresses[0]) as server:
        say("ready")
        with server.accept()[0] as peer:
            began, got = time.monotonic(), 0
            while got < size:
                got += len(peer.recv(65536))
            say("took", seconds=time.monotonic() - began)
else:
    sys.stdin.read()
    with socket.create_connection(addresses[0]) as peer:
        peer.sendall(b"x" * size)
        peer.recv(1)
"""
# It frees no space: space freed after the disk was filled could be written again.
WRITING = """
path = os.path.join(sys.argv[sys.argv.index("--model-dir") + 1], "file")
while True:
    try:
        with open(path, "ab", buffering=0) as file:
            file.write(b"x" * 4096)
        say("wrote")
    except OSError as error:
        say("refused", error=errno.errorcode[error.errno])
    select.select([], [], [], 0.005)
"""
ENOUGH = 20  # datagrams, of which some would arrive


def row(directory: Path, body: str, workers: int = 2) -> Trainer:
    path = directory / "program.py"
    path.write_text(SAY + textwrap.dedent(body))
    return fakes.bare(path, (("worker", workers),))


@pytest.fixture
def engine(fake_engine: Engine, tmp_path: Path) -> Iterator[Engine]:
    made = replace(fake_engine, zygotes={}, directory=tmp_path)
    yield made
    made.stop()


def start(engine: Engine, trainer: Trainer, **how: object) -> Cluster:
    return engine.launch(trainer, backend="none", keras="none", **how)  # type: ignore[arg-type]


def heard_from_now(cluster: Cluster, surely: set[str]) -> set[str]:
    """Return the tasks that receive datagrams sent from now on.

    Datagrams are compared by number, because a busy machine may read old ones much later. Wait for
    the tasks in `surely` to receive one, and for both tasks to have sent enough.
    """
    now_s, first = time.monotonic(), {}
    for task in cluster.tasks:
        sent = cluster.wait_for("sent", task, where=lambda e: e.time_s > now_s)
        first[task] = sent["number"]

    def is_new(event: Event) -> bool:
        (other,) = set(cluster.tasks) - {event.task}
        return event["number"] >= first[other]

    for task in surely:
        cluster.wait_for("got", task, where=is_new)
    for task in cluster.tasks:
        enough = first[task] + ENOUGH
        cluster.wait_for("sent", task, where=lambda e, enough=enough: e["number"] > enough)
    return {e.task for e in cluster.run().of("got") if is_new(e)}


def last_s(run: Run) -> float:
    return max(e.time_s for e in run.events)


@needs_namespaces
def test_each_state_of_a_link_stops_what_it_says(engine, tmp_path):
    with start(engine, row(tmp_path, CHATTER), on_hosts=True) as cluster:
        cluster.start()
        for task in cluster.tasks:
            cluster.wait_for("got", task)
        for state, heard in (
            ("cut", set()),
            ("drop", set()),
            ("deaf", {"worker/0"}),
            ("mute", {"worker/1"}),
        ):
            cluster.link("worker/1", state)
            assert heard_from_now(cluster, heard) == heard, state
            cluster.link("worker/1", "whole")
            healed = last_s(cluster.run())
            for task in cluster.tasks:  # soon: a host asks again for a peer that it could not find
                cluster.wait_for("got", task, where=lambda e, since=healed: e.time_s > since)


@needs_namespaces
def test_a_narrow_link_takes_its_time(engine, tmp_path):
    with start(engine, row(tmp_path, BULK), on_hosts=True) as cluster:
        cluster.link("worker/1", "throttle")
        cluster.start("worker/0")
        cluster.wait_for("ready", "worker/0")
        cluster.start("worker/1")
        took = cluster.wait_for("took", "worker/0")
        assert took["seconds"] > 0.5 * 512 * 1024 * 8 / 20e6  # at 20 Mbit/s


def plain_tcp(engine: Engine, link: str) -> Limits:
    """Return the results of the benchmarks' TCP program over links in this state."""
    trainer = fakes.bare(ROOT / "suite/programs/tcp_limit.py", (("worker", 2),))
    flags = {"seconds": 0.3}
    with start(engine, trainer, on_hosts=True, flags=flags) as cluster:
        linked(cluster, link)
        return limits(streamed(cluster))


@needs_namespaces
def test_a_link_is_as_fast_as_it_is_held_to(engine):
    link = "200mbit"  # slower than any machine
    whole = plain_tcp(engine, virtual_hosts.WHOLE)
    shaped = fastest(partial(plain_tcp, engine, link), RATES[link])
    link_is_as_fast_as_asked(shaped, whole, RATES[link])


@needs_namespaces
def test_link_slowed_down_twice_has_the_second_rate(engine, tmp_path):
    with start(engine, row(tmp_path, CHATTER), on_hosts=True) as cluster:
        for state in ("throttle", "1gbit", "drop", "200mbit", "whole"):
            cluster.link("worker/1", state)
        cluster.start()
        cluster.wait_for("got", "worker/1")


@needs_namespaces
@pytest.mark.parametrize("state", ["delay", "loss"])
@pytest.mark.skipif(ISOLATED and network.has_netem(), reason="this kernel can do it")
def test_what_the_kernel_cannot_do_to_a_link_is_unsupported(engine, tmp_path, state):
    with (
        start(engine, row(tmp_path, CHATTER), on_hosts=True) as cluster,
        pytest.raises(Unsupported, match=r"link of worker/1: this kernel has no netem queue"),
    ):
        cluster.link("worker/1", state)


@needs_namespaces
@pytest.mark.skipif(not network.has_netem(), reason="this kernel has no netem queue")
def test_a_delay_is_what_every_answer_waits_for(engine):
    assert plain_tcp(engine, "delay").tcp_ping_p50_s > 0.04  # 10 ms at each of four ends


@needs_namespaces
def test_dead_network_helper_leaves_nothing_behind(engine, tmp_path):
    engine.session = f"helper-{os.getpid()}"
    cluster = start(engine, row(tmp_path, CHATTER), on_hosts=True)

    def lose_the_helper() -> None:
        with cluster:
            cluster.start()
            cluster.hold("worker/0", "sent")
            assert cluster.hosts
            assert cluster.hosts.process
            helper = cluster.hosts.process
            assert any(f"process {helper.pid} " in line for line in leaks.processes(engine.session))
            helper.kill()
            helper.wait()  # or the request may still find its reader and not break a pipe
            cluster.link("worker/1", "cut")

    with pytest.raises(HarnessError, match=r"network helper .* was killed by signal 9"):
        lose_the_helper()
    assert cluster.holds == {}
    engine.stop()
    assert leaks.processes(engine.session) == []


@needs_namespaces
def test_hosts_are_distinguished_by_address(engine, tmp_path):
    with start(engine, row(tmp_path, CHATTER), on_hosts=True) as cluster:
        addresses = cluster.plan.addresses
        assert addresses == {"worker/0": "10.77.0.1:2222", "worker/1": "10.77.0.2:2222"}


@needs_namespaces
def test_a_state_that_is_none_is_refused(engine, tmp_path):
    with (
        start(engine, row(tmp_path, CHATTER), on_hosts=True) as cluster,
        pytest.raises(HarnessError, match=r"link of worker/1: .*soggy"),
    ):
        cluster.link("worker/1", "soggy")


@needs_namespaces
def test_each_state_of_a_disk_refuses_what_it_says(engine, tmp_path):
    directory = tmp_path / "model"
    directory.mkdir()
    trainer = row(tmp_path, WRITING, workers=1)
    with start(engine, trainer, on_disk="64m", model_dir=directory) as cluster:
        cluster.start()
        for state, event, error in (
            ("whole", "wrote", None),
            ("full", "refused", "ENOSPC"),
            ("whole", "wrote", None),
        ):
            cluster.disk(state)
            since = last_s(cluster.run())
            came = cluster.wait_for(event, where=lambda e, since=since: e.time_s > since)
            assert came.get("error") == error, state
        assert not list(directory.iterdir()), "the machine's own disk was written to"


@needs_namespaces
def test_a_read_only_disk_is_found_so(engine, tmp_path):
    directory = tmp_path / "model"
    directory.mkdir()
    trainer = row(tmp_path, WRITING, workers=1)
    with start(engine, trainer, on_disk="64m", model_dir=directory) as cluster:
        cluster.disk("read-only")
        cluster.start()
        assert cluster.wait_for("refused")["error"] == "EROFS"
        cluster.disk("whole")
        cluster.wait_for("wrote")


def test_without_namespaces_there_is_a_reason(engine, tmp_path):
    engine.network = network.Network(network.LEASED_PORTS, "this kernel does not allow it")
    with pytest.raises(Unsupported, match=r"hosts of their own .* this kernel does not allow it"):
        start(engine, row(tmp_path, CHATTER), on_hosts=True)
    with pytest.raises(Unsupported, match=r"a disk of their own .* this kernel does not allow it"):
        start(engine, row(tmp_path, CHATTER), on_disk="1m", model_dir=tmp_path)


def test_a_bridge_joins_no_more_than_its_subnet_holds():
    with pytest.raises(HarnessError, match="at most 254"):
        virtual_hosts.addresses([f"worker/{i}" for i in range(255)])
