"""Tests that each check fails for exactly one injected defect, and passes a healthy trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reference_trainers import Trainer
from suite.harness.checks import parameter_servers
from suite.harness.checks.assertions import same
from suite.harness.cluster import diagnostics
from suite.harness.cluster.launcher import Engine
from suite.harness.core.errors import CheckFailed, Unsupported
from suite.harness.core.history import Event, Run
from suite.harness.core.outcomes import Compared, Continued, Misconfigured
from suite.harness.faults import matrix, promises
from suite.harness.faults.injection import FaultOutcome
from suite.harness.scenarios import fault_free
from suite.meta import fakes, histories
from suite.meta.groups import (
    ALLOWED,
    BY_NAME,
    CHECKS,
    LIMIT_S,
    RED,
    SEVERAL,
    Stage,
    judge,
    judge_all,
)

AT_ONCE = 4  # scenarios, which mostly wait

pytestmark = pytest.mark.xdist_group("checks")  # one process runs the scenarios of all


@pytest.fixture(scope="session")
def stage(
    request: pytest.FixtureRequest,
    fake_engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """Run all scenarios that the selected tests need, several at a time."""
    directory = tmp_path_factory.mktemp("checks")
    engine = fakes.toy_engine(fake_engine, directory, LIMIT_S)
    specs = (getattr(item, "callspec", None) for item in request.session.items)
    asked = [spec.params for spec in specs if spec is not None]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = Stage(engine, directory, pool)
        for params in asked:
            if params.keys() >= {"group", "defect"}:
                found.run(params["group"], params["defect"])
        yield found
    engine.stop()


@pytest.mark.parametrize(("group", "defect"), [(name, "") for name in BY_NAME], ids=BY_NAME)
def test_a_healthy_trainer_passes_all_checks(group: str, defect: str, stage: Stage) -> None:
    assert judge_all(BY_NAME[group], stage.run(group, defect).result()) == {}


@pytest.mark.parametrize(("group", "defect"), ALLOWED)
def test_what_is_allowed_passes_all_checks(group: str, defect: str, stage: Stage) -> None:
    assert judge_all(BY_NAME[group], stage.run(group, defect).result()) == {}


@pytest.mark.parametrize(("check", "group", "defect"), [(c, *r) for c, r in RED.items()], ids=RED)
def test_a_defect_makes_exactly_this_check_red(
    check: str, group: str, defect: str, stage: Stage
) -> None:
    complaints = judge_all(BY_NAME[group], stage.run(group, defect).result())
    assert list(complaints) == [check], complaints


@pytest.mark.parametrize(("group", "defect"), SEVERAL)
def test_a_defect_in_several_ways_is_found_in_all(group: str, defect: str, stage: Stage) -> None:
    complaints = judge_all(BY_NAME[group], stage.run(group, defect).result())
    assert set(complaints) == SEVERAL[group, defect], complaints


@pytest.mark.parametrize(
    ("check", "metric", "values"),
    [
        ("loss_falls", "loss", (2.300, 2.295, 2.290)),
        ("accuracy_rises", "accuracy", (0.10, 0.11, 0.12)),
    ],
)
def test_what_chance_gives_is_not_learning(check: str, metric: str, values: tuple[float, ...]):
    """Each epoch is better than the one before, as in one of six runs that learn nothing."""
    epochs = tuple(
        Event("epoch", float(i), "worker/0", 0, {"metrics": {metric: value}})
        for i, value in enumerate(values)
    )
    run = Run(fakes.SINGLE, ("worker/0",), ("worker/0",), "none", "none", epochs)
    assert "only" in judge(check, run)


@pytest.mark.parametrize(
    ("reported_s", "ended_s", "by_harness", "complaint"),
    [
        (1.0, 9.0, False, ""),
        (3.0, 9.0, False, r"not failed 2\.0 s after .* \(`peer_lost` came after 3\.0 s\)"),
        (1.0, 9.0, True, r"failed 1\.0 s after worker/1 was lost, and had not left 8\.0 s later"),
        (None, 1.0, False, r"worker/0 failed .* but by an error that names no lost peer"),
        (None, 3.0, False, r"not failed 2\.0 s after .* \(`exited` came after 3\.0 s\)"),
        (None, 1.0, True, r"not failed 2\.0 s after .* kill came after 1\.0 s\)"),
    ],
)
def test_peer_must_report_the_loss_in_time_and_exit_itself(
    reported_s: float | None, ended_s: float, by_harness: bool, complaint: str
) -> None:
    events = [
        Event("fault_started", 0.0, "worker/1", 0, {"fault": "sigkill"}),
        Event("exited", ended_s, "worker/0", 0, {"ended_by_harness": by_harness, "code": 1}),
    ]
    if reported_s is not None:
        events.insert(1, Event("peer_lost", reported_s, "worker/0", 0, {"error": "gone"}))
    run = Run(fakes.WORKERS, histories.TASKS, histories.TASKS, "ring", "none", tuple(events))
    said = judge("peers_fail_in_time", run)
    assert bool(said) == bool(complaint)
    assert re.search(complaint, said or ""), said


@pytest.mark.parametrize(
    ("defect", "epoch"), [("is_apart_early", 1), ("is_apart_late", 2), ("never_learns", 0)]
)
def test_unequal_weights_are_reported_with_epoch_and_limit(
    defect: str, epoch: int, stage: Stage
) -> None:
    said = judge("equals_large_batch", stage.run("large", defect).result()) or ""
    differ = rf"after epoch {epoch} differ from those of one process .* by 0\.\d+ of the distance"
    assert re.search(rf"{differ} .* explains up to 0\.\d+$" if epoch else "have moved by", said)


@pytest.mark.parametrize(
    ("trainer", "steps", "passes"),
    [
        (fakes.WORKERS, 6, True),
        (fakes.WORKERS, 7, False),
        (fakes.AGGREGATES, 7, False),
        (fakes.SERVERS, 7, True),  # its workers may have steps under way at the limit
        (fakes.SERVERS, 5, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_synchronous_run_that_makes_more_steps_fails(trainer: Trainer, steps: int, passes: bool):
    ends = [
        (task, *event)
        for task in histories.TASKS
        for event in (("finished", {"global_step": steps}), ("exited", {"code": 0}))
    ]
    run = histories.history(*ends, **{"epochs": 2, "steps-per-epoch": 3})
    said = judge("finishes_requested_steps", replace(run, trainer=trainer))
    assert (said == "") == passes, said


@pytest.mark.parametrize(
    ("turns", "complaint"),
    [
        ("0" * 50 + "01" * 5, ""),
        ("0" * 50 + "1", ""),
        ("0" * 5 + "1" + "0" * 50, "since all of them train: {'worker/0': 50, 'worker/1': 1}"),
        ("0" * 50, "no steps by worker/1"),
    ],
    ids=["late", "at the very end", "idle after a step", "absent"],
)
def test_workers_that_start_late_contribute_from_then_on(turns: str, complaint: str):
    run = histories.history(*((f"worker/{turn}", "step", {}) for turn in turns))
    if complaint:
        with pytest.raises(CheckFailed, match=complaint):
            parameter_servers.all_workers_contribute(run)
    else:
        parameter_servers.all_workers_contribute(run)


@pytest.mark.parametrize("apart", [1, 2, 3])
def test_every_side_is_compared_with_the_first(apart: int):
    sides = {f"worker/{i}": int(i == apart) for i in range(4)}
    with pytest.raises(CheckFailed, match=f"worker/{apart} has 1, worker/0 has 0"):
        same("number", sides)


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_last_pass_over_the_data_is_judged(wrong: int):
    """One of three passes over four examples has one of them twice."""
    inputs = [
        (task, "input", {"global_step": number, "ids": ids})
        for number in (1, 2, 3)
        for task, ids in zip(histories.TASKS, ([0, 1], [2, 2 + (number != wrong)]), strict=True)
    ]
    said = judge("each_example_once", histories.history(*inputs, examples=4))
    assert f"pass {wrong} over 4 examples: 1 never seen" in said


def test_batches_of_unknown_workers_are_compared_with_those_of_a_second_run_only():
    def run(first: int) -> Run:
        return histories.history(("chief/0", "input", {"ids": [first, 1], "worker": None}))

    repeated, new = (
        judge("second_run_has_new_batches", Continued(run(0), run(first))) for first in (0, 2)
    )
    assert "train on the same batches, 1 of 1 and 1" in repeated
    assert not new
    with pytest.raises(Unsupported, match="cannot ask which worker executes it"):
        fault_free.batches_by_worker(run(0))
    known = histories.history(
        ("chief/0", "input", {"ids": [0], "worker": "worker/1"}),
        ("worker/0", "input", {"ids": [1]}),
    )
    assert fault_free.batches_by_worker(known) == {"worker/0": 1, "worker/1": 1}


@pytest.mark.parametrize(("apart", "found"), [(1e-5, False), (1e-4, True), (-1e-4, True)])
def test_loss_that_is_a_ten_thousandth_apart_is_found(apart: float, found: bool):
    def run(loss: float) -> Run:
        step = {"global_step": 1, "loss": loss, "examples": 8}
        return histories.history(*((task, "step", step) for task in histories.TASKS))

    said = judge("equals_large_batch", Compared(run(2.0 * (1.0 + apart)), run(2.0)))
    assert ("loss of step 1" in said) == found, said


@pytest.mark.parametrize(
    ("step", "apart", "found"), [(3, 1e-4, True), (4, 1e-4, False), (4, 2e-3, True)]
)
@pytest.mark.parametrize(
    "flag", [{"model": "synchronized-cnn"}, {"model": "normalized-cnn"}, {"optimizer": "adam"}]
)
def test_losses_of_some_may_differ_more_after_the_first_epoch(flag, step, apart, found):
    def run(last: float) -> Run:
        losses = {number: last if number == step else 2.0 for number in range(1, step + 1)}
        flags = {**flag, "steps-per-epoch": 3}
        steps = [{"global_step": n, "loss": loss, "examples": 8} for n, loss in losses.items()]
        events = [(task, "step", each) for each in steps for task in histories.TASKS]
        return histories.history(*events, **flags)

    said = judge("equals_large_batch", Compared(run(2.0 * (1.0 + apart)), run(2.0)))
    assert (f"loss of step {step}" in said) == found, said


@pytest.mark.parametrize(
    ("precision", "apart", "found"),
    [
        ("float32", "bias", True),
        ("float32", "kernel", True),
        ("mixed_bfloat16", "bias", False),
        ("mixed_bfloat16", "kernel", True),
    ],
)
def test_only_kernels_are_compared_in_mixed_precision(precision, apart, found, tmp_path):
    """The bias has moved by two fifths less than it should have, or the kernel by one fifth."""

    def run(*moved: float) -> Run:
        events: list[tuple[str, str, dict[str, Any]]] = []
        for when, (kernel, bias) in {"initial": (0.0, 0.0), "epoch": moved}.items():
            path = tmp_path / f"{when}-{kernel}-{bias}.npz"
            np.savez(path, np.full((2, 2), kernel), np.full(2, bias))
            event = {**histories.state(when, 1, path.stem), "npz": str(path)}
            events += [(task, "weights", event) for task in histories.TASKS]
        step = {"global_step": 1, "loss": 2.0, "examples": 8}
        events += [(task, "step", step) for task in histories.TASKS]
        return histories.history(*events, precision=precision)

    less = {"kernel": (0.8, 1.0), "bias": (1.0, 0.6)}[apart]
    shape = {"kernel": "(2, 2)", "bias": "(2,)"}[apart]
    said = judge("equals_large_batch", Compared(run(*less), run(1.0, 1.0)))
    assert (f"of shape {shape} after epoch 1 differ" in said) == found, said
    assert found or not said


@pytest.mark.parametrize(
    ("fallen", "passes"), [(0.7, False), (0.8, True), (1.2, True), (1.3, False)]
)
def test_loss_that_falls_too_far_is_found(fallen: float, passes: bool):
    """The loss of the baseline falls by 1."""

    def run(fallen: float) -> Run:
        epoch = {"metrics": {"loss": 2.0 - fallen}}
        return histories.history(("worker/0", "step", {"loss": 2.0}), ("worker/0", "epoch", epoch))

    said = judge("converges_to_baseline", Compared(run(fallen), run(1.0)))
    assert ("more than 25% apart" not in said) == passes, said


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({"ckpt-1": "a", "ckpt-2": "b", "ckpt-3": "c"}, []),
        ({"ckpt-1": "a", "ckpt-2": "c"}, ["ckpt-2"]),
        ({"ckpt-2": "b"}, ["ckpt-1"]),
        ({"ckpt-1": "c"}, ["ckpt-1", "ckpt-2"]),
    ],
)
def test_each_changed_or_removed_file_is_found(after: Mapping[str, str], found: list[str]):
    run, before = histories.history(), {"ckpt-1": "a", "ckpt-2": "b"}
    outcome = histories.OnDirectory(run, Misconfigured(run, before, after))
    said = judge("nothing_overwritten", outcome)
    assert said == (f"files that were changed or removed: {found}" if found else "")


@pytest.mark.parametrize(
    ("promise", "complaint"),
    [
        (promises.FAIL, "worker/0 had not failed 2.0 s after worker/1 was lost"),
        (promises.FINISH, "worker/0 had not ended 2.0 s after worker/1"),
        (promises.CONTINUE, "worker/0 made 0 steps after sigkill of worker/1"),
        (promises.BLOCK, "number of return of worker/1: 0, not 1"),
    ],
)
def test_fault_matrix_judges_the_reaction_of_peers(promise: promises.Promise, complaint: str):
    """The peer of a lost worker hangs until the harness ends it."""
    run = histories.history(
        ("worker/1", "fault_started", {"fault": "sigkill"}),
        ("worker/0", "exited", {"code": None, "ended_by_harness": True}),
    )
    outcome = FaultOutcome(run, matrix.ROWS[0], promise, promise.restart)
    with pytest.raises(CheckFailed, match=re.escape(complaint)):
        promises.judge(outcome, LIMIT_S)


@pytest.mark.parametrize(("digest", "passes"), [("a", True), ("b", False)])
def test_weights_that_one_worker_reports_twice_agree_if_they_are_the_same(
    digest: str, passes: bool
):
    first, last = histories.state("initial", 0, "a"), histories.state("final", 5, "z")
    run = histories.history(
        ("worker/0", "weights", first),
        ("worker/0", "weights", {**first, "digest": digest}),
        ("worker/1", "weights", first),
        ("worker/0", "weights", last),
        ("worker/1", "weights", last),
    )
    assert (judge("workers_agree_on_weights", run) == "") == passes


@pytest.mark.parametrize(("clock_error_s", "passes"), [(0.0, False), (0.5, False), (1.5, True)])
def test_events_that_clocks_cannot_order_are_simultaneous(clock_error_s: float, passes: bool):
    """A worker makes a step 1 s before its peer is up."""
    run = histories.history(
        ("worker/0", "started", {}),
        ("worker/0", "step", {"global_step": 1}),
        ("worker/1", "started", {}),
    )
    run = replace(run, clock_error_s=clock_error_s)
    assert (judge("waits_for_all", run) == "") == passes
    up, step, _ = run.events
    assert run.surely_before(up, step)  # on the clock of one task
    assert not run.surely_before(step, up)


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_is_content_with_nothing(check: str) -> None:
    nothing = Run(fakes.WORKERS, histories.TASKS, histories.TASKS, "ring", "none", ())
    outcome = SimpleNamespace(
        run=nothing,
        reference=nothing,
        then=nothing,
        fewer=nothing,
        unexpected="worker/2",
        formats=(),
        gone=True,
    )
    outcome.misconfigured = Misconfigured(nothing, {}, {})
    assert judge(check, outcome)


def test_of_who_hangs_the_history_says_where_and_who_is_missing(stage: Stage) -> None:
    run = stage.run("fault", "hangs_when_a_peer_dies").result().run
    (hung,) = run.of("hung")
    assert (hung.task, hung["missing"]) == ("worker/0", ["worker/1"])
    assert re.search(r"\w+ \(fake_\w+\.py:\d+\)", hung["waits_in"]), hung["waits_in"]
    report = diagnostics.hangs(run)
    assert report.splitlines() == [
        "missing: worker/1",
        f"worker/0 waits in {hung['waits_in']}",
    ]


def test_every_check_has_a_defect_that_it_finds() -> None:
    assert RED.keys() == CHECKS.keys()
