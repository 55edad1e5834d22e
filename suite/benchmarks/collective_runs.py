"""Clusters that time collectives or plain TCP over unshaped or rate-limited links.

The module also lists the settings of TensorFlow's collectives that are compared with the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suite.harness.checks import communication
from suite.harness.checks.assertions import require
from suite.harness.cluster.cluster import Cluster
from suite.harness.core.errors import Unsupported
from suite.harness.core.history import Run
from suite.harness.metrics.collective_bandwidth import (
    Collective,
    Limits,
    implementation,
    limits,
    named,
    overlaps,
    relative_to_peers,
    timed,
)
from suite.harness.scenarios import small_programs
from suite.harness.session.session import Launch

PEER = "gloo"  # the other library, of PEERS in collectives.py
LOOPBACK = "loopback"  # all tasks on one host; any other link is a state of network_links.py
KIB, MIB = 1024, 1024**2
WORKERS = (2, 4)
# The host's name may have an address that its cluster's namespace does not have.
OF_PEER = {"GLOO_SOCKET_IFNAME": "lo"}
Record = Callable[..., None]


@dataclass(frozen=True)
class Setting:
    """A user's settings of collectives: flags of the program, or environment variables."""

    name: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def channel(option: str, value: int) -> Setting:
    """Return a setting of an option of gRPC's channels between ranks (grpc_channel.cc)."""
    return Setting(f"{option}={value}", env={"TF_GRPC_DEFAULT_OPTIONS": f"{option}={value}"})


DEFAULT = Setting("default")
# Arguments of CommunicationOptions, then of tf.config.threading. TensorFlow's worker cache and gRPC
# channels read the others from the environment, once in each process.
SETTINGS = (
    Setting("bytes_per_pack=1 MiB", {"bytes-per-pack": MIB}),
    Setting("bytes_per_pack=4 MiB", {"bytes-per-pack": 4 * MIB}),
    Setting("timeout_seconds=60", {"timeout-seconds": 60}),
    Setting("inter_op=1", {"inter-op": 1}),
    Setting("inter_op=8", {"inter-op": 8}),
    Setting("intra_op=1", {"intra-op": 1}),
    Setting("TF_GRPC_WORKER_CACHE_THREADS=8", env={"TF_GRPC_WORKER_CACHE_THREADS": "8"}),
    channel("grpc.http2.lookahead_bytes", 16 * MIB),
    channel("grpc.http2.max_frame_size", 16 * MIB - 1),
)


def linked(cluster: Cluster, link: str) -> None:
    """Put the links of all hosts into this state, if the tasks have separate hosts."""
    if link != LOOPBACK:
        for task in cluster.tasks:
            cluster.link(task, link)


def collected(
    launch: Launch,
    op: str,
    sizes: Sequence[int],
    *,
    workers: int = 2,
    link: str = LOOPBACK,
    setting: Setting = DEFAULT,
    backend: str = "",
    **flags: Any,
) -> Run:
    """Time this operation on these sizes in bytes in a fresh cluster, and check the results.

    `backend`: the backend to request, instead of the case's.
    """
    trainer = small_programs.program(launch, "collectives", flags=("backend",))
    given = {
        **small_programs.NOT_TAKEN,
        "op": op,
        "sizes": ",".join(map(str, sizes)),
        **setting.flags,
    }
    given |= {name.replace("_", "-"): value for name, value in flags.items()}
    how: dict[str, Any] = {"backend": backend} if backend else {}
    env = {**setting.env, **(OF_PEER if "peer" in flags else {})}
    how |= {"jobs": (("worker", workers),), "env": env, "on_hosts": link != LOOPBACK}
    with launch(trainer, flags=given, **how) as cluster:
        linked(cluster, link)
        cluster.start()
        return cluster.complete()


def peer_flags(launch: Launch) -> dict[str, Any]:
    """Return the flag that also times a peer library, which takes ports of its own.

    Without namespaces these would be open to others, so there is no flag.
    """
    try:
        launch.engine.network.check_own_ports(PEER)
    except Unsupported:
        return {}
    return {"peer": PEER}


def measured_limits(launch: Launch, link: str = LOOPBACK, seconds: float = 0.5) -> Limits:
    """Measure the limits of a path: plain TCP, memcpy, and a copy between two GPUs of one host."""
    trainer = small_programs.program(launch, "tcp_limit", keras=False)
    given = {**small_programs.NOT_TAKEN, "seconds": seconds}
    jobs, hosts = (("worker", 2),), link != LOOPBACK
    with launch(trainer, jobs=jobs, flags=given, on_hosts=hosts) as cluster:
        linked(cluster, link)
        run = streamed(cluster)
    between_gpus = not hosts and launch.engine.has_gpus(1, 2)
    return limits(run, copied(launch) if between_gpus else None)


def sizes_of_clusters(launch: Launch, backend: str = "") -> list[int]:
    """Return the sizes in WORKERS that have a GPU for each worker, if NCCL is requested on GPUs.

    Without NCCL or without any GPU, return all sizes. `backend`: the requested backend, default the
    case's. Raise Unsupported if no size remains.
    """
    engine = launch.engine
    other = (backend or launch.case.backend) != "nccl"
    found = [n for n in WORKERS if other or not engine.gpu_count or engine.has_gpus(n)]
    if not found:
        raise Unsupported(f"no GPU for each of {WORKERS[0]} workers: there is {engine.gpu_count}")
    return found


def copied(launch: Launch) -> Run:
    """Copy between two devices of one process, GPUs if there are two."""
    trainer = small_programs.alone(launch, "device_copy", keras=False, devices=2)
    return small_programs.complete(launch, trainer, flags=small_programs.NOT_TAKEN)


def streamed(cluster: Cluster) -> Run:
    """Run both tasks of tcp_limit.py, the second one once the first is reachable."""
    server, client = cluster.tasks
    cluster.start(server)
    cluster.wait_for("serving", server)
    cluster.start(client)
    return cluster.complete()


def checked_collectives(run: Run) -> list[Collective]:
    """Check that all results are right, and return the numbers of each operation and size.

    Those of a peer library are among them, if it is installed.
    """
    communication.backend_as_requested(run)
    communication.collective_is_known(run)
    communication.collective_results_are_right(run)
    return timed(run)


def record_collectives(
    record: Record, run: Run, path_limits: Limits, link: str = LOOPBACK, repeat: int = 0
) -> list[Collective]:
    """Check and record a run's collectives, together with the path_limits of its path.

    Return those of TensorFlow.
    """
    made = checked_collectives(run)
    for metric, value, unit, better in path_limits.measurements():
        columns = {"workers": 2, "variant": f"over {link}", "repeat": repeat}
        record(metric, value, unit, better, **columns)
    workers = len(run.workers)
    for one in made:
        chosen = one.peer or implementation(run, one.op)
        over = "" if link == LOOPBACK else link
        variant = named(one.op, one.size_bytes, over, dtype=one.dtype)
        columns = {
            "workers": workers,
            "replicas": workers,
            "variant": variant,
            "backend": "" if one.peer else run.backend,
            "collective": chosen,
            "repeat": repeat,
        }
        for metric, value, unit, better in one.measurements():
            record(metric, value, unit, better, **columns)
        for metric, share in path_limits.shares(one, chosen):
            record(metric, share, "1", "higher", **columns)
    for peer, own, ratio in relative_to_peers(made):
        columns = {
            "workers": workers,
            "variant": named(own.op, own.size_bytes),
            "backend": run.backend,
            "collective": implementation(run, own.op),
            "repeat": repeat,
        }
        record(f"collective_times_{peer}", ratio, "1", "higher", **columns)
    for size_bytes, share in overlaps(run):
        columns = {"workers": workers, "variant": named("all_reduce", size_bytes), "repeat": repeat}
        record("collective_overlap_share", share, "1", "higher", **columns)
    return [one for one in made if not one.peer]


def require_share(run: Run, made: Sequence[Collective], path_limits: Limits, least: float) -> None:
    """Require that the largest size reaches this share of plain TCP, or of a copy between GPUs.

    Raise CheckFailed otherwise. `least`: of --min-busbw-share; 0 requires nothing.
    """
    largest = max(made, key=lambda one: one.size_bytes)
    for metric, share in path_limits.shares(largest, implementation(run, largest.op)):
        path = "one plain TCP stream" if metric.endswith("tcp") else "a copy between two GPUs"
        require(
            share >= least,
            f"busbw of {named(largest.op, largest.size_bytes)} is {100 * share:.3g} % of {path}; "
            f"--min-busbw-share requires {100 * least:.3g} %",
        )
