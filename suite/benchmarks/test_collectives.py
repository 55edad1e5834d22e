"""TensorFlow's collectives: correct results, time by size, and share of the path's limit.

Every run does a quick check. A benchmark run measures everything, in several fresh clusters for
each figure. The limits (plain TCP over the same path, memcpy) are measured next to each figure.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from suite.benchmarks.collective_runs import (
    DEFAULT,
    KIB,
    LOOPBACK,
    MIB,
    SETTINGS,
    collected,
    copied,
    measured_limits,
    sizes_of_clusters,
)
from suite.benchmarks.test_throughput import must_be_what_was_asked
from suite.benchmarks.time_budget import passes
from suite.harness.checks import communication
from suite.harness.core.case import Case
from suite.harness.core.errors import Unsupported
from suite.harness.core.history import Run
from suite.harness.metrics.collective_bandwidth import (
    Collective,
    Limits,
    copied_gb_per_s,
    implementation,
    named,
    timed,
)
from suite.harness.session.session import Launch, Session

QUICK_SIZES = (KIB, 256 * KIB, 4 * MIB)  # bytes
QUICK_S = 0.3  # per size
SIZES = tuple(KIB * 4**k for k in range(9))  # to 64 MiB
EACH_S = 0.25
CLUSTERS, BUDGET_S = 3, 25  # at most: clusters per figure, seconds per operation
# A gradient in as many tensors as a small model has variables, so that there is something to pack.
TUNED_BYTES, TENSORS = 8 * MIB, 16
ROUNDS, ROUNDS_S = 4, 40  # at most
Record = Callable[..., None]


def judged(run: Run) -> list[Collective]:
    """Check that all results are right, and return the numbers of each operation and size."""
    communication.backend_as_requested(run)
    communication.collective_is_known(run)
    communication.collective_results_are_right(run)
    return timed(run)


def record_all(
    record: Record, run: Run, limits: Limits, link: str = LOOPBACK, repeat: int = 0
) -> list[Collective]:
    """Check and record a run's collectives, together with the limits of its path."""
    made = judged(run)
    for metric, value, unit, better in limits.measurements():
        columns = {"workers": 2, "variant": f"over {link}", "repeat": repeat}
        record(metric, value, unit, better, **columns)
    workers = len(run.workers)
    for one in made:
        chosen = implementation(run, one.op)
        columns = {
            "workers": workers,
            "replicas": workers,
            "variant": named(one.op, one.size_bytes, "" if link == LOOPBACK else link),
            "backend": run.backend,
            "collective": chosen,
            "repeat": repeat,
        }
        for metric, value, unit, better in one.measurements():
            record(metric, value, unit, better, **columns)
        for metric, share in limits.shares(one, chosen):
            record(metric, share, "1", "higher", **columns)
    return made


@pytest.mark.claim("mwms/communication")
@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
def test_all_reduce_is_right_at_every_size(launch: Launch, record: Record) -> None:
    limits = measured_limits(launch, seconds=QUICK_S)
    record_all(record, collected(launch, "all_reduce", QUICK_SIZES, seconds=QUICK_S), limits)


@pytest.mark.claim("mwms/communication")
@pytest.mark.cases(families=("mwms",), fit=True, backends="each", flavors="first")
@pytest.mark.timing
@pytest.mark.full
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast"])
def test_collectives_by_size(
    case: Case, launch: Launch, session: Session, record: Record, op: str
) -> None:
    for repeat in passes(CLUSTERS, BUDGET_S):
        limits = measured_limits(launch)
        for workers in sizes_of_clusters(launch):
            run = collected(launch, op, SIZES, workers=workers, seconds=EACH_S)
            record_all(record, run, limits, repeat=repeat)
            # A result of another backend is measured often enough under that backend's name.
            must_be_what_was_asked(case, run.collective, session)


@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_reduce_scatter_by_size(launch: Launch, record: Record) -> None:
    """Request NCCL, the only backend with this operation."""
    sizes = sizes_of_clusters(launch, "nccl")
    for repeat in passes(CLUSTERS, BUDGET_S):
        for workers in sizes:
            how = {"workers": workers, "backend": "nccl", "seconds": EACH_S}
            run = collected(launch, "reduce_scatter", SIZES, **how)
            record_all(record, run, measured_limits(launch), repeat=repeat)


@pytest.mark.cases(distributed=False, several=True, fit=True, flavors="first")
@pytest.mark.timing
def test_copies_between_gpus_are_right(launch: Launch, record: Record) -> None:
    """Record copies between GPUs, the reference for NCCL's busbw.

    Between logical CPUs the same program measures no limit.
    """
    (copy,) = copied(launch).of("limit")
    if copy["what"] != "gpu_copy":
        raise Unsupported(f"no GPU: {copy['what']} is of two devices in one memory")
    record("limit_gpu_copy_gb_per_s", copied_gb_per_s(copy), "GB/s", "higher")


@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_settings_of_all_reduce(launch: Launch, record: Record) -> None:
    """Compare each setting with the default of its round, in fresh clusters, for the report."""
    for repeat in passes(ROUNDS, ROUNDS_S):
        taken = {}
        every = (DEFAULT, *SETTINGS)
        first = repeat * len(every) // ROUNDS  # rotated: none is always first or last
        for setting in (*every[first:], *every[:first]):
            run = collected(
                launch,
                "all_reduce",
                [TUNED_BYTES],
                setting=setting,
                tensors=TENSORS,
                seconds=EACH_S,
            )
            (taken[setting.name],) = (made.busbw_gb_per_s for made in judged(run))
            if "bytes-per-pack" in setting.flags:
                communication.tensors_are_packed(run)
        for setting in SETTINGS:
            ratio = taken[setting.name] / taken[DEFAULT.name]
            variant = named("all_reduce", TUNED_BYTES, setting=setting.name)
            columns = {"workers": 2, "variant": variant, "repeat": repeat}
            record("collective_times_default", ratio, "1", "higher", **columns)
