"""Compute bandwidths from the times of collectives; pure functions over a Run.

algbw and busbw are those of nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): bytes by
time, and that times a factor that makes it comparable with the speed of one rank's link. nccl-tests
takes the mean over ranks as the time of an iteration. Here the time is from the last rank's begin
to the last rank's end, on the one clock that all ranks of a machine share: the wait of one rank for
another to start is not part of the operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from suite.harness.core.history import Event, Run
from suite.harness.metrics.throughput import warm_up

GB = 1e9  # bytes
UNDISTURBED = 90  # percentile over the stretches of a stream
DTYPE = "float32"  # of values whose variant names no type
AT_LEAST = 5  # timed iterations that must remain after the warm-up

# busbw is algbw times this factor of n ranks. Bytes are the whole tensor's: the input of each rank,
# except for all_gather, where they are the output of each.
FACTORS: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {
        "all_reduce": lambda n: 2 * (n - 1) / n,
        "all_gather": lambda n: (n - 1) / n,
        "reduce_scatter": lambda n: (n - 1) / n,
        "broadcast": lambda _: 1.0,
    }
)

# TensorFlow's log prefixes these names with the name of the implementation.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "all_reduce": "Reduce",
        "all_gather": "Gather",
        "reduce_scatter": "ReduceScatter",
        "broadcast": "Broadcast",
    }
)
IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {"Ring": "ring", "Nccl": "nccl", "HierarchicalTree": "tree"}
)

# Logged when an operation that reduces several tensors at once is traced.
PACKED = re.compile(r"Collective all_reduce tensors: (\d+) all_reduces,.* num_packs = (\d+)")


def packs(run: Run) -> set[int]:
    """Return the logged numbers of packs of all-reduces of several tensors.

    The set is empty where there was none. It has more than one number where the number varied.
    """
    logged = [PACKED.findall(run.log(worker)) for worker in run.workers]
    return {int(number) for lines in logged for tensors, number in lines if int(tensors) > 1}


@dataclass(frozen=True)
class Collective:
    """One operation on one size over `ranks` ranks, without warm-up.

    Arrays are float64 [iterations], in seconds. `times_s`: from the last begin to the last end.
    `whole_s`: from the first begin, when data may first have moved, to the last end. `skews_s`:
    from the first rank's end to the last rank's end. `warm_up`: number of iterations left out
    before. `peer`: the library that ran it, if not TensorFlow.
    """

    op: str
    size_bytes: int
    dtype: str
    ranks: int
    times_s: np.ndarray
    whole_s: np.ndarray
    skews_s: np.ndarray
    warm_up: int
    peer: str = ""

    @property
    def moved_bytes(self) -> float:
        """Return the bytes that the busiest rank has to send or receive in one iteration."""
        return FACTORS[self.op](self.ranks) * self.size_bytes

    @property
    def algbw_gb_per_s(self) -> float:
        return self.size_bytes / float(np.median(self.times_s)) / GB

    @property
    def busbw_gb_per_s(self) -> float:
        return self.moved_bytes / float(np.median(self.times_s)) / GB

    def measurements(self) -> Iterator[tuple[str, float, str, str]]:
        """Yield (metric, value, unit, better) of all reported numbers of one operation."""
        p50_s, p99_s = np.percentile(self.times_s, (50, 99))
        yield "collective_time_p50_s", float(p50_s), "s", "lower"
        yield "collective_time_p99_s", float(p99_s), "s", "lower"
        spread = float(np.std(self.times_s, ddof=1) / np.mean(self.times_s))
        yield "collective_time_cv", spread, "1", "lower"
        yield "collective_skew_p50_s", float(np.median(self.skews_s)), "s", "lower"
        yield "collective_iterations", float(len(self.times_s)), "1", "none"
        yield "collective_algbw_gb_per_s", self.algbw_gb_per_s, "GB/s", "higher"
        yield "collective_busbw_gb_per_s", self.busbw_gb_per_s, "GB/s", "higher"

    def least_s(self, bytes_per_s: float, burst_bytes: float = 0.0) -> float:
        """Return the least time of one iteration over links of that speed, in seconds.

        `burst_bytes`: bytes that an idle link passes at once.
        """
        return max(0.0, self.moved_bytes - burst_bytes) / bytes_per_s


def timed(run: Run) -> list[Collective]:
    """Return each operation and size that all ranks have timed, in order.

    Raise ValueError if ranks have timed different operations, or too few iterations.
    """
    by_rank = [run.of("collective", worker) for worker in run.workers]
    operations = [[(*_which(e), len(e["begins_s"])) for e in events] for events in by_rank]
    if not operations[0] or any(other != operations[0] for other in operations):
        raise ValueError(f"the ranks have timed different operations: {operations}")
    return [_together(events) for events in zip(*by_rank, strict=True)]


def _which(event: Event) -> tuple[str, int, str, str]:
    return event["op"], event["bytes"], event["dtype"], event.get("peer", "")


def _together(events: Sequence[Event]) -> Collective:
    begins, ends = (np.array([e[key] for e in events]) for key in ("begins_s", "ends_s"))
    times_s = ends.max(axis=0) - begins.max(axis=0)
    op, size, dtype, peer = _which(events[0])
    if len(times_s) < AT_LEAST:
        raise ValueError(f"{op} of {size} bytes was timed {len(times_s)} times, not {AT_LEAST}")
    left_out = warm_up(times_s, AT_LEAST)
    begins, ends, times_s = begins[:, left_out:], ends[:, left_out:], times_s[left_out:]
    whole_s, skews_s = ends.max(axis=0) - begins.min(axis=0), np.ptp(ends, axis=0)
    return Collective(op, size, dtype, len(events), times_s, whole_s, skews_s, left_out, peer)


def relative_to_peers(made: Sequence[Collective]) -> Iterator[tuple[str, Collective, float]]:
    """Yield each peer and operation of TensorFlow with its busbw relative to the peer's."""
    by_key = {(one.op, one.size_bytes, one.dtype): one for one in made if not one.peer}
    for one in made:
        if one.peer:
            own = by_key[one.op, one.size_bytes, one.dtype]
            yield one.peer, own, own.busbw_gb_per_s / one.busbw_gb_per_s


@dataclass(frozen=True)
class Limits:
    """Limits of the path and the memory without TensorFlow; units as in the names."""

    tcp_gb_per_s: float  # one way, one stream
    tcp_ping_p50_s: float  # round trip, one byte
    memcpy_gb_per_s: float
    gpu_copy_gb_per_s: float | None = None  # from one GPU to another
    tcp_undisturbed_gb_per_s: float | None = None  # 90th percentile of its stretches

    def measurements(self) -> Iterator[tuple[str, float, str, str]]:
        yield "limit_tcp_gb_per_s", self.tcp_gb_per_s, "GB/s", "higher"
        yield "limit_tcp_ping_p50_s", self.tcp_ping_p50_s, "s", "lower"
        yield "limit_memcpy_gb_per_s", self.memcpy_gb_per_s, "GB/s", "higher"
        if self.gpu_copy_gb_per_s:
            yield "limit_gpu_copy_gb_per_s", self.gpu_copy_gb_per_s, "GB/s", "higher"

    def shares(self, made: Collective, implementation: str) -> Iterator[tuple[str, float]]:
        """Yield (metric, share) of an operation's busbw in the limit of its path.

        The path of NCCL is from GPU to GPU, that of the others is through sockets.
        """
        if implementation != "nccl":
            yield "collective_share_of_tcp", made.busbw_gb_per_s / self.tcp_gb_per_s
        elif self.gpu_copy_gb_per_s:
            yield "collective_share_of_gpu_copy", made.busbw_gb_per_s / self.gpu_copy_gb_per_s


def limits(run: Run, copies: Run | None = None) -> Limits:
    """Return the limits that tcp_limit.py and device_copy.py have reported.

    Raise ValueError if the report of tcp_limit.py is incomplete.
    """
    found = {e["what"]: e for e in run.of("limit")}
    if missing := {"tcp_stream", "tcp_ping", "memcpy"} - found.keys():
        raise ValueError(f"the limits lack {', '.join(sorted(missing))}")
    stream, ping, copy = (found[what] for what in ("tcp_stream", "tcp_ping", "memcpy"))
    trips_s = np.array(ping["ends_s"]) - np.array(ping["begins_s"])
    mean_gb_per_s, undisturbed_gb_per_s = _stream_gb_per_s(stream)
    between_gpus = [e for e in copies.of("limit") if e["what"] == "gpu_copy"] if copies else []
    return Limits(
        mean_gb_per_s,
        float(np.median(trips_s)),
        copied_gb_per_s(copy),
        copied_gb_per_s(between_gpus[0]) if between_gpus else None,
        undisturbed_gb_per_s,
    )


def copied_gb_per_s(copy: Event) -> float:
    """Return the median over the copies."""
    took_s = np.array(copy["ends_s"]) - np.array(copy["begins_s"])
    return float(np.median(np.array(copy["bytes"]) / took_s)) / GB


def _stream_gb_per_s(stream: Event) -> tuple[float, float]:
    """Return the mean and the 90th percentile over the stretches of the stream's steady part.

    TCP starts slowly, or with a burst where the link was idle.
    """
    taken, begins, ends = (np.array(stream[k]) for k in ("bytes", "begins_s", "ends_s"))
    # If the stream ended just after a mark, its last stretch is empty and not part of the stream.
    taken, begins, ends = (values[taken > 0] for values in (taken, begins, ends))
    steady = warm_up((ends - begins) / taken, AT_LEAST)
    taken, begins, ends = (values[steady:] for values in (taken, begins, ends))
    mean = float(taken.sum() / (ends[-1] - begins[0]))
    return mean / GB, float(np.percentile(taken / (ends - begins), UNDISTURBED)) / GB


def named(op: str, size_bytes: int, link: str = "", setting: str = "", dtype: str = DTYPE) -> str:
    """Return the `variant` of a measurement.

    It reads "all_reduce 1024 B", "... of float16", "... over 1gbit" or "... with x=1".
    """
    of = f" of {dtype}" if dtype != DTYPE else ""
    over = f" over {link}" if link else ""
    return f"{op} {size_bytes} B{of}{over}" + (f" with {setting}" if setting else "")


def overlaps(run: Run) -> Iterator[tuple[int, float]]:
    """Yield the size in bytes, and the share of the shorter duration that was saved by overlap.

    It is 1 if the shorter of reduction and computation costs no time when both run together, 0 if
    they run one after the other, and negative if they slow each other down. Medians over the
    repetitions.
    """
    for event in run.of("overlapped", run.workers[0]):
        reduction_s, computation_s, both_s = (
            float(np.median(event[key])) for key in ("reduction_s", "computation_s", "both_s")
        )
        saved_s = reduction_s + computation_s - both_s
        yield event["bytes"], saved_s / min(reduction_s, computation_s)


def implementation(run: Run, op: str) -> str:
    """Return the implementation that TensorFlow chose for this operation: ring, nccl, tree or none.

    Several names are joined by `+` where the choice varied.
    """
    found = (n.removesuffix(NAMES[op]) for n in run.assigned if n.endswith(NAMES[op]))
    return "+".join(sorted(IMPLEMENTATIONS.get(name, name.lower()) for name in found)) or "none"
