"""TensorFlow's collectives: correct results, time by size, and share of the path's limit.

Every run does a quick check. A benchmark run measures everything, in several fresh clusters for
each figure. The limits (plain TCP over the same path, memcpy) are measured next to each figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from suite.benchmarks.collective_runs import (
    DEFAULT,
    KIB,
    MIB,
    SETTINGS,
    Record,
    checked_collectives,
    collected,
    copied,
    measured_limits,
    peer_flags,
    record_collectives,
    require_share,
    sizes_of_clusters,
)
from suite.benchmarks.time_budget import passes
from suite.benchmarks.training_runs import require_requested_backend
from suite.harness.checks import communication
from suite.harness.core.case import Case
from suite.harness.core.errors import Unsupported
from suite.harness.metrics.collective_bandwidth import (
    copied_gb_per_s,
    named,
)
from suite.harness.session.session import Launch, Session

QUICK_SIZES = (KIB, 256 * KIB, 4 * MIB)  # bytes
QUICK_S = 0.3  # per size
SIZES = (8, 128, *(KIB * 4**k for k in range(9)))  # to 64 MiB
DTYPES = ("float16", "bfloat16", "int32")  # in addition to float32
OVERLAPPED = (256 * KIB, 4 * MIB)
OVERLAP_TIMES = 12  # repetitions
EACH_S = 0.25
CLUSTERS, BUDGET_S = 3, 25  # at most: clusters per figure, seconds per operation
# A gradient in as many tensors as a small model has variables, so that there is something to pack.
TUNED_BYTES, TENSORS = 8 * MIB, 16
ROUNDS, ROUNDS_S = 4, 40  # at most


def by_size(
    case: Case,
    launch: Launch,
    session: Session,
    record: Record,
    op: str,
    clusters: Iterable[int],
    sizes: Sequence[int] = SIZES,
    **flags: Any,
) -> None:
    """Measure an operation in clusters of so many workers, in several passes."""
    for repeat in passes(CLUSTERS, BUDGET_S):
        limits = measured_limits(launch)
        for workers in clusters:
            run = collected(launch, op, sizes, workers=workers, seconds=EACH_S, **flags)
            record_collectives(record, run, limits, repeat=repeat)
            # A result of another backend is measured often enough under that backend's name.
            require_requested_backend(case, run.collective, session)


@pytest.mark.claim("mwms/communication")
@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
def test_all_reduce_is_right_at_every_size(
    launch: Launch, session: Session, record: Record
) -> None:
    limits = measured_limits(launch, seconds=QUICK_S)
    run = collected(launch, "all_reduce", QUICK_SIZES, seconds=QUICK_S, **peer_flags(launch))
    made = record_collectives(record, run, limits)
    require_share(run, made, limits, session.settings.min_busbw_share)


@pytest.mark.claim("mwms/communication")
@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
def test_all_reduce_is_right_for_every_datatype(launch: Launch, record: Record) -> None:
    limits = measured_limits(launch, seconds=QUICK_S)
    sizes = (QUICK_SIZES[0], QUICK_SIZES[-1])
    run = collected(launch, "all_reduce", sizes, dtypes=",".join(DTYPES), seconds=QUICK_S)
    record_collectives(record, run, limits)


@pytest.mark.claim("mwms/communication")
@pytest.mark.cases(families=("mwms",), fit=True, backends="each", flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_all_reduce_by_datatype_and_size(
    case: Case, launch: Launch, session: Session, record: Record
) -> None:
    clusters = sizes_of_clusters(launch)
    by_size(case, launch, session, record, "all_reduce", clusters, dtypes=",".join(DTYPES))


@pytest.mark.cases(families=("mwms",), fit=True, backends="each", flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_all_reduce_during_a_computation(
    case: Case, launch: Launch, session: Session, record: Record
) -> None:
    how = {"sizes": OVERLAPPED, "overlap": True, "at_least": OVERLAP_TIMES}
    by_size(case, launch, session, record, "all_reduce", (2,), **how)


@pytest.mark.claim("mwms/communication")
@pytest.mark.cases(families=("mwms",), fit=True, backends="each", flavors="first")
@pytest.mark.timing
@pytest.mark.full
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast"])
def test_collectives_by_size(
    case: Case, launch: Launch, session: Session, record: Record, op: str
) -> None:
    how = peer_flags(launch) if op == "all_reduce" else {}
    by_size(case, launch, session, record, op, sizes_of_clusters(launch), **how)


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
            record_collectives(record, run, measured_limits(launch), repeat=repeat)


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
        busbw = {}
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
            (busbw[setting.name],) = (made.busbw_gb_per_s for made in checked_collectives(run))
            if "bytes-per-pack" in setting.flags:
                communication.tensors_are_packed(run)
        for setting in SETTINGS:
            ratio = busbw[setting.name] / busbw[DEFAULT.name]
            variant = named("all_reduce", TUNED_BYTES, setting=setting.name)
            columns = {"workers": 2, "variant": variant, "repeat": repeat}
            record("collective_times_default", ratio, "1", "higher", **columns)
