"""Tests of the metrics of collectives for known times, and of links that are too fast or slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suite.benchmarks.collective_runs import record_collectives, require_share
from suite.harness.checks import communication
from suite.harness.checks.link_limits import (
    TRIES,
    fastest,
    link_is_as_fast_as_asked,
    no_faster_than_the_link,
    steps_no_faster_than_the_link,
)
from suite.harness.core.errors import CheckFailed
from suite.harness.core.history import Event, Run, in_order
from suite.harness.core.link_rates import RATES, Rate
from suite.harness.metrics.collective_bandwidth import (
    Collective,
    Limits,
    implementation,
    limits,
    overlaps,
    timed,
)
from suite.meta.fakes import WORKERS

TWELVE = [0.5 * i for i in range(12)]  # start times of iterations, s
GIGABYTE = 10**9
LINK = Rate(8e9, burst_bytes=10**6, limit_bytes=10**7)  # 1 GB/s


def made_up(
    times: Sequence[tuple[Sequence[float], Sequence[float]]], op="all_reduce", peer: float = 0.0
) -> Run:
    """Return a run whose ranks began and ended operations on a gigabyte at these times.

    With `peer`, Gloo did the same so many seconds faster.
    """
    tasks = tuple(f"worker/{i}" for i in range(len(times)))
    events = []
    for task, (begins, ends) in zip(tasks, times, strict=True):
        fields = collective(op, list(begins), list(ends))
        events.append(Event("collective", 0.0, task, 0, fields))
        if peer:
            faster = {**fields, "ends_s": later(ends, -peer), "peer": "gloo"}
            events.append(Event("collective", 0.0, task, 0, faster))
    return Run(WORKERS, tasks, tasks, "ring", "none", in_order(events))


def collective(op: str, begins: list[float], ends: list[float]) -> dict[str, object]:
    of = {"op": op, "bytes": GIGABYTE, "dtype": "float32"}
    return {**of, "begins_s": begins, "ends_s": ends, "wrong": None}


def later(times: Sequence[float], seconds: float) -> list[float]:
    return [time_s + seconds for time_s in times]


def test_time_is_from_the_last_begin_to_the_last_end():
    early = (TWELVE, later(TWELVE, 0.1875))
    late = (later(TWELVE, 0.0625), later(TWELVE, 0.25))
    (made,) = timed(made_up([early, late]))
    assert made.times_s == pytest.approx([0.1875] * 12)
    assert made.whole_s == pytest.approx([0.25] * 12)
    assert made.skews_s == pytest.approx([0.0625] * 12)


def test_a_peer_library_is_recorded_apart_and_is_no_share_of_tensorflow(tmp_path: Path):
    run = made_up([(TWELVE, later(TWELVE, 0.25))] * 2, peer=0.125)
    joined = [Event("joined", 0.0, task, 0, {"backend": "ring"}) for task in run.workers]
    log = tmp_path / "log"
    log.write_text("AssignCollectiveType RingReduce")
    logs = {(task, 0): log for task in run.workers}
    run = replace(run, events=(*joined, *run.events), logs=logs)
    rows = []

    def record(metric: str, value: float, *_: str, **columns: str) -> None:
        rows.append((metric, value, columns.get("backend"), columns.get("collective")))

    (own,) = record_collectives(record, run, Limits(8.0, 1e-5, 50.0))
    assert not own.peer
    busbw = {
        tuple(of): value for metric, value, *of in rows if metric == "collective_busbw_gb_per_s"
    }
    assert busbw == pytest.approx({("ring", "ring"): 4.0, ("", "gloo"): 8.0})
    assert ("collective_times_gloo", pytest.approx(0.5), "ring", "ring") in rows


def test_a_wrong_result_of_a_peer_library_names_it():
    run = made_up([(TWELVE, later(TWELVE, 0.25))] * 2, peer=0.125)
    wrong = {"got": 1.0, "wanted": 2.0, "position": 3, "iteration": 4}
    events = [
        replace(e, data={**e.data, "wrong": wrong if e.get("peer") else None}) for e in run.events
    ]
    with pytest.raises(
        CheckFailed, match=r"^gloo: all_reduce of 1000000000 bytes gave worker/0 1\.0"
    ):
        communication.collective_results_are_right(replace(run, events=tuple(events)))


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 4, 0.75),
        ("broadcast", 4, 1.0),
    ],
)
def test_busbw_is_that_of_nccl_tests(op: str, ranks: int, factor: float):
    (made,) = timed(made_up([(TWELVE, later(TWELVE, 0.25))] * ranks, op))
    values = {metric: value for metric, value, _, _ in made.measurements()}
    assert values["collective_algbw_gb_per_s"] == pytest.approx(4.0)
    assert values["collective_busbw_gb_per_s"] == pytest.approx(4.0 * factor)
    assert values["collective_time_p50_s"] == pytest.approx(0.25)
    assert values["collective_time_cv"] == pytest.approx(0.0, abs=1e-9)


def test_ranks_that_timed_different_things_are_no_measurement():
    whole, half = (TWELVE, later(TWELVE, 0.2)), (TWELVE[:11], later(TWELVE[:11], 0.2))
    with pytest.raises(ValueError, match="the ranks have timed different operations"):
        timed(made_up([whole, half]))
    with pytest.raises(ValueError, match="the ranks have timed different operations"):
        timed(Run(WORKERS, ("worker/0",), ("worker/0",), "ring", "none", ()))
    with pytest.raises(ValueError, match="all_reduce of 1000000000 bytes was timed 4 times"):
        timed(made_up([(TWELVE[:4], later(TWELVE[:4], 0.2))] * 2))


def test_the_implementation_is_that_of_the_operation(tmp_path: Path):
    """Each run also has a reduction, which makes its ranks start together."""
    log = tmp_path / "log"
    names = ("HierarchicalTreeBroadcast", "RingReduce")
    log.write_text("\n".join(f"AssignCollectiveType {name}" for name in names))
    run = replace(made_up([(TWELVE, TWELVE)]), logs={("worker/0", 0): log})
    assert implementation(run, "broadcast") == "tree"
    assert implementation(run, "all_reduce") == "ring"
    assert implementation(run, "all_gather") == "none"


def limits_run(*rows: tuple[str, list[int], list[float], list[float]]) -> Run:
    fields = ("what", "bytes", "begins_s", "ends_s")
    events = (Event("limit", 0.0, "worker/0", 0, dict(zip(fields, e, strict=True))) for e in rows)
    return Run(WORKERS, ("worker/0",), ("worker/0",), "none", "none", tuple(events))


def test_limits_are_of_the_steady_stream():
    begins = [0.0, *(1.0 + 0.01 * i for i in range(20))]  # the stream starts after a second
    stream = ("tcp_stream", [10**7] * 21, begins, later(begins[1:], 0.0) + [1.2])
    ping = ("tcp_ping", [1, 1, 1], [0.0, 1.0, 2.0], [0.1, 1.2, 2.3])
    copy = ("memcpy", [GIGABYTE] * 3, [0.0, 1.0, 2.0], [0.5, 1.25, 2.8])
    found = limits(limits_run(stream, ping, copy))
    assert found.tcp_gb_per_s == pytest.approx(1.0)
    assert found.tcp_ping_p50_s == pytest.approx(0.2)
    assert found.memcpy_gb_per_s == pytest.approx(2.0)
    with pytest.raises(ValueError, match="the limits lack memcpy, tcp_ping"):
        limits(limits_run(stream))


def test_nccl_is_limited_by_a_gpu_copy_and_the_ring_by_tcp():
    rows = [
        (w, [GIGABYTE] * 2, [0.0, 1.0], [0.5, 1.5]) for w in ("tcp_stream", "tcp_ping", "memcpy")
    ]
    copies = limits_run(("gpu_copy", [GIGABYTE] * 3, [0.0, 1.0, 2.0], [0.1, 1.05, 2.5]))
    found = limits(limits_run(*rows), copies)
    assert found.gpu_copy_gb_per_s == pytest.approx(10.0)
    assert dict(found.shares(took(2.0), "nccl")) == {
        "collective_share_of_gpu_copy": pytest.approx(1 / 30)
    }
    assert list(dict(found.shares(took(2.0), "ring"))) == ["collective_share_of_tcp"]
    # A copy between logical CPUs is no limit, and nothing replaces the GPU copy.
    for other in (None, limits_run(("cpu_copy", [GIGABYTE], [0.0], [0.1]))):
        without = limits(limits_run(*rows), other)
        assert without.gpu_copy_gb_per_s is None
        assert not dict(without.shares(took(2.0), "nccl"))


def reached(gb_per_s: float, quick: float | None = None) -> Limits:
    return Limits(gb_per_s, 1e-5, memcpy_gb_per_s=5.0, tcp_undisturbed_gb_per_s=quick)


@pytest.mark.parametrize(("both_s", "share"), [(1.5, 0.75), (1.25, 1.0), (2.25, 0.0), (3.25, -1.0)])
def test_overlap_is_the_share_of_the_shorter_duration_that_is_saved(both_s: float, share: float):
    fields = {"bytes": 8, "reduction_s": [1.25] * 3, "computation_s": [1.0, 1.0, 9.0]}
    event = Event("overlapped", 0.0, "worker/0", 0, {**fields, "both_s": [both_s] * 3})
    run = Run(WORKERS, ("worker/0",), ("worker/0",), "ring", "none", (event,))
    assert list(overlaps(run)) == [(8, share)]


def test_a_share_of_the_path_can_be_required():
    made = [took(1.0), replace(took(0.001), size_bytes=1024)]  # of 1 GB/s, and less
    run = made_up([(TWELVE, later(TWELVE, 1.0))] * 2)
    path = Limits(tcp_gb_per_s=2.0, tcp_ping_p50_s=1e-5, memcpy_gb_per_s=9.0)
    for least in (0.0, 0.2):
        require_share(run, made, path, least)
    with pytest.raises(CheckFailed, match=r"is 25 % of one plain TCP stream; --min-busbw-share"):
        require_share(run, made, path, 0.3)


def test_a_link_that_is_too_fast_or_too_slow_is_found():
    link_is_as_fast_as_asked(reached(0.955), reached(3.0), LINK)
    with pytest.raises(CheckFailed, match="the rate limit has no effect"):
        link_is_as_fast_as_asked(reached(1.06), reached(3.0), LINK)
    with pytest.raises(CheckFailed, match="3 GB/s over the whole link"):
        link_is_as_fast_as_asked(reached(0.85), reached(3.0), LINK)
    with pytest.raises(CheckFailed, match=r"reached 0\.850"):
        link_is_as_fast_as_asked(reached(0.95, quick=0.85), reached(3.0), LINK)
    link_is_as_fast_as_asked(reached(0.85), reached(1.2), LINK)  # the machine itself is no faster


def streamed(gb_per_s: float, stolen: Callable[[int], float] = lambda _: 0.0) -> Limits:
    """Return the limits from a stream in stretches of 10 ms, each with a stolen share."""
    pieces = [int(gb_per_s * 1e7 * (1 - stolen(i))) for i in range(100)]
    begins = [0.01 * i for i in range(100)]
    rows = [("tcp_stream", pieces, begins, [at + 0.01 for at in begins])]
    rows += [(w, [GIGABYTE] * 2, [0.0, 1.0], [0.5, 1.5]) for w in ("tcp_ping", "memcpy")]
    return limits(limits_run(*rows))


def test_a_link_that_was_idle_for_most_of_the_time_is_not_slow():
    found = streamed(0.955, lambda i: 0.0 if i % 5 == 0 else 0.7)
    assert found.tcp_gb_per_s < 0.5
    assert found.tcp_undisturbed_gb_per_s == pytest.approx(0.955, rel=0.01)
    link_is_as_fast_as_asked(found, reached(3.0), LINK)


def test_a_link_that_is_slow_all_the_time_is_slow():
    with pytest.raises(CheckFailed, match=r"reached 0\.850"):
        link_is_as_fast_as_asked(streamed(0.85), reached(3.0), LINK)


@pytest.mark.parametrize(
    ("streams", "asked", "fastest_of_them"),
    [
        ((0.95, 1.2), 1, 0.95),
        ((1.2, 0.95), 1, 1.2),  # the check then finds it too fast
        ((0.6, 0.95, 1.2), 2, 0.95),
        ((0.6, 0.85, 0.7, 0.95), TRIES, 0.85),
    ],
)
def test_a_disturbed_stream_is_measured_again(
    streams: tuple[float, ...], asked: int, fastest_of_them: float
):
    left = iter(streams)
    found = fastest(lambda: reached(next(left)), LINK)
    assert found.tcp_gb_per_s == fastest_of_them
    assert len(list(left)) == len(streams) - asked


def took(seconds: float) -> Collective:
    times_s = np.array([seconds + 1.0] * 9 + [seconds])
    return Collective("all_reduce", GIGABYTE, "float32", 2, times_s, times_s, times_s, 0)


def test_an_iteration_faster_than_the_link_is_found():
    no_faster_than_the_link(took(0.999), LINK)  # a gigabyte without the burst takes 0.999 s
    no_faster_than_the_link(took(0.96), LINK)
    with pytest.raises(CheckFailed, match=r"took 0\.94 s over links that need 0\.999 s"):
        no_faster_than_the_link(took(0.94), LINK)


def test_more_steps_than_the_link_has_room_for_are_found():
    assert steps_no_faster_than_the_link(9.0, 10**8, LINK) == pytest.approx(10.0)
    with pytest.raises(CheckFailed, match=r"10\.6 steps/s, where the links allow 10"):
        steps_no_faster_than_the_link(10.6, 10**8, LINK)


def test_a_bucket_holds_what_passes_in_a_tick_and_a_packet():
    for rate in (rate for name, rate in RATES.items() if name != "throttle"):
        assert rate.burst_bytes >= rate.bytes_per_s / 250
        assert rate.burst_bytes >= 64 * 1024
        assert rate.limit_bytes > rate.burst_bytes


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_bucket_holds_no_more_than_it_must(rate: Rate):
    """After idling, a link passes a whole bucket at once: a larger one would exceed the rate."""
    assert rate.burst_bytes <= max(65 * 1024, rate.bytes_per_s / 250)
