"""Collectives and training over links of a known speed, each compared with its physical limit.

Each worker is on a separate host, behind a link that a token bucket limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from suite.benchmarks.collective_runs import (
    MIB,
    Record,
    collected,
    linked,
    measured_limits,
    record_collectives,
)
from suite.benchmarks.time_budget import passes
from suite.harness.checks.link_limits import (
    fastest,
    link_is_as_fast_as_asked,
    no_faster_than_the_link,
    steps_no_faster_than_the_link,
)
from suite.harness.cluster.virtual_hosts import WHOLE
from suite.harness.core.history import Run
from suite.harness.core.link_rates import RATES
from suite.harness.metrics.throughput import timed_steps
from suite.harness.scenarios import base
from suite.harness.scenarios.fault_free import start_of
from suite.harness.session.session import Launch

LINKS = ("10gbit", "1gbit", "200mbit")
SIZES = (MIB, 16 * MIB)  # bytes
EACH_S = 0.4
STREAM_S = 1.0
STEPS = 14
PASSES, BUDGET_S = 2, 35  # at most, through all links


@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_all_reduce_over_shaped_links(launch: Launch, record: Record) -> None:
    for repeat in passes(PASSES, BUDGET_S):
        all_reduce_over_all_links(launch, record, repeat)


def all_reduce_over_all_links(launch: Launch, record: Record, repeat: int) -> None:
    whole = measured_limits(launch, WHOLE, STREAM_S)
    run = collected(launch, "all_reduce", SIZES, link=WHOLE, seconds=EACH_S)
    record_collectives(record, run, whole, WHOLE, repeat)
    for link in LINKS:
        rate = RATES[link]
        shaped = fastest(partial(measured_limits, launch, link, STREAM_S), rate)
        run = collected(launch, "all_reduce", SIZES, link=link, seconds=EACH_S)
        made = record_collectives(record, run, shaped, link, repeat)
        columns = {"variant": f"over {link}", "workers": 2, "repeat": repeat}
        record("limit_link_gb_per_s", rate.gb_per_s, "GB/s", **columns)
        link_is_as_fast_as_asked(shaped, whole, rate)
        for one in made:
            no_faster_than_the_link(one, rate)


@pytest.mark.cases(families=("mwms",), fit=False, flavors="first")
@pytest.mark.timing
@pytest.mark.full
def test_training_over_shaped_links(launch: Launch, record: Record) -> None:
    """Record throughput by bandwidth, and the maximum step rate for the size of the gradients."""
    for repeat in passes(PASSES, BUDGET_S):
        for link in (WHOLE, *LINKS):
            columns = {"workers": 2, "variant": f"over {link}", "repeat": repeat}
            steps_per_s, gradient_bytes = trained_over(launch, record, link, columns)
            if link == WHOLE:
                continue
            rate = RATES[link]
            most_per_s = steps_no_faster_than_the_link(steps_per_s, gradient_bytes, rate)
            record("shaped_steps_limit_per_s", most_per_s, "1/s", **columns)
            record("limit_link_gb_per_s", rate.gb_per_s, "GB/s", **columns)


@pytest.mark.cases(families=("mwms",), fit=True, flavors="first")
@pytest.mark.timing
@pytest.mark.full
@pytest.mark.parametrize("link", ["delay", "loss"])
def test_all_reduce_over_bad_links(launch: Launch, record: Record, link: str) -> None:
    """Check that every result is right, however long it takes."""
    shaped = measured_limits(launch, link, STREAM_S)
    run = collected(launch, "all_reduce", SIZES, link=link, seconds=EACH_S)
    record_collectives(record, run, shaped, link)


def trained_over(
    launch: Launch, record: Record, link: str, columns: Mapping[str, Any]
) -> tuple[float, int]:
    """Train the document's model on two hosts; return steps per second and bytes of a gradient."""
    model = launch.case.trainer.model
    flags = base.work(launch, model=model, epochs=1, steps_per_epoch=STEPS, dump_weights=True)
    with launch(flags=flags, on_hosts=True) as cluster:
        linked(cluster, link)
        cluster.start()
        run = cluster.complete()
    steps_per_s = timed_steps(run).steps_per_s
    record("shaped_steps_per_s", steps_per_s, "1/s", "higher", **columns)
    return steps_per_s, weight_bytes(run)


def weight_bytes(run: Run) -> int:
    """Return the bytes of all trainable weights at the start of the run, the size of a gradient."""
    with np.load(start_of(run)) as arrays:
        return sum(arrays[name].nbytes for name in arrays.files)
