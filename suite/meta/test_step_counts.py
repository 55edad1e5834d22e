"""Tests of the numbers of a step: from histories, as answers, in the gate and on the pages."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reference_trainers import BY_NAME
from reports.ab import command, pairs
from reports.compare import gate
from reports.sections import step_counts as section
from reports.stats import counts
from reports.stats.counts import COUNTS
from reports.stats.ratio_tests import Answer
from suite.harness.core.history import Event, Run, in_order
from suite.harness.metrics import step_counts
from suite.meta import made_up_pair, made_up_run
from suite.meta.made_up_run import MULTI, SINGLE
from suite.meta.test_reports_paired import measured, row, turns

TOGETHER = BY_NAME["keras_multi_worker_mirrored"]
EACH_ON_ITS_OWN = BY_NAME["supervisor_parameter_server"]
DTENSOR = BY_NAME["dtensor_data_parallel"]
NETWORK = 1


def traced(time_s: float, task: str = "worker/0", operations: int = 10, **fields: Any) -> Event:
    given = {"operations": operations, "collectives": 2, "collective_bytes": 100, **fields}
    return Event("traced", time_s, task, 0, {"global_step": 0, **given})


def resources(step: int, sent: int, task: str = "worker/0", **fields: Any) -> Event:
    given = {"step": step, "global_step": step, "sent_bytes": sent, "heap_bytes": 0, **fields}
    return Event("resources", float(step), task, 0, {"network": NETWORK, **given})


def run_of(*events: Event, trainer: Any = TOGETHER) -> Run:
    workers = ("worker/0", "worker/1")
    return Run(trainer, workers, workers, "ring", "none", in_order(events))


def steps(number: int, task: str = "worker/0") -> list[Event]:
    return [Event("step", float(i), task, 0, {"step": i}) for i in range(1, number + 1)]


# --- from a history ------------------------------------------------------------------------------


def test_numbers_are_those_of_the_last_graph():
    run = run_of(traced(0.1, operations=9), traced(0.2), *steps(3))
    assert step_counts.counts(run) == {
        "step_operations": 10,
        "step_collectives": 2,
        "step_collective_bytes": 100,
        "retracings": 0,
    }


def test_bytes_of_unknown_shape_are_left_out():
    found = step_counts.counts(run_of(traced(0.1, collective_bytes=None), *steps(1)))
    assert "step_collective_bytes" not in found


def test_collectives_that_are_added_after_the_trace_are_unknown():
    found = step_counts.counts(run_of(traced(0.1), *steps(1), trainer=DTENSOR))
    assert found == {"step_operations": 10, "retracings": 0}


def test_a_trace_after_the_first_step_is_a_retracing_of_its_task():
    later = [traced(1.5), traced(2.5), traced(2.5, "worker/1")]
    run = run_of(traced(0.1), traced(0.2), *later, *steps(3), *steps(3, "worker/1"))
    assert step_counts.counts(run)["retracings"] == 2


def test_bytes_sent_are_of_the_spans_within_an_epoch():
    epoch = Event("epoch", 15.0, "worker/0", 0, {})
    samples = [resources(5, 0), resources(10, 500), resources(20, 9500), resources(40, 11500)]
    assert step_counts.counts(run_of(*samples, epoch))["wire_bytes_per_step"] == 100
    of_others = [resources(5, 0, "worker/1"), resources(40, 70_000, "worker/1")]
    assert step_counts.counts(run_of(*samples, *of_others, epoch))["wire_bytes_per_step"] == 100


def test_bytes_sent_through_several_networks_add_up():
    first = [resources(5, 0), resources(10, 500)]
    second = [resources(step, sent, "worker/1", network=2) for step, sent in ((5, 100), (10, 1100))]
    run = run_of(traced(0.1), *first, *second)
    assert step_counts.counts(run)["wire_bytes_per_step"] == 300
    assert step_counts.counts(run)["wire_bytes_per_collective"] == 150


def test_bytes_sent_by_asynchronous_workers_are_a_mean_over_the_global_steps():
    samples = [resources(5, 0, global_step=10), resources(10, 1200, global_step=22)]
    run = run_of(*samples, trainer=EACH_ON_ITS_OWN)
    assert step_counts.counts(run)["wire_bytes_per_step"] == 100
    better = {metric: better for metric, _, _, better in step_counts.measurements(run)}
    assert better == {"wire_bytes_per_step": "none"}


def test_a_network_that_is_shared_with_others_is_not_counted():
    own = os.stat(step_counts.NETWORK).st_ino
    samples = [resources(5, 0, network=own), resources(10, 500, network=own)]
    assert "wire_bytes_per_step" not in step_counts.counts(run_of(*samples))


def test_growth_is_that_of_the_heap_without_buffers_of_a_few_samples():
    heap = {5: 0, 10: 1000, 20: 2000, 40: 90_000, 50: 5000, 60: 6000, 70: 7000, 80: 8000}
    samples = [resources(step, 0, heap_bytes=held) for step, held in heap.items()]
    assert step_counts.heap_growth(run_of(*samples), "worker/0") == pytest.approx(100, rel=0.05)
    found = step_counts.of_long_run(run_of(*samples))
    assert found["heap_growth_bytes_per_step"] == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("held", [None, 5])
def test_growth_is_unknown_without_enough_samples(held: int | None):
    samples = [resources(step, 0, heap_bytes=held) for step in (10, 20, 40)]
    assert step_counts.heap_growth(run_of(*samples), "worker/0") is None


# --- answers -------------------------------------------------------------------------------------

SPREAD = counts.Count("bytes sent", share=0.01)


@pytest.mark.parametrize(
    ("base", "new", "answer"),
    [
        ([7, 7], [7, 7], Answer.NO_CHANGE),
        ([7], [8], Answer.REGRESSION),
        ([7, 7], [6, 6], Answer.IMPROVEMENT),
        ([7, 7], [7, 8], Answer.CANNOT_TELL),
        ([7, 8], [7, 7], Answer.CANNOT_TELL),
        ([0, 0], [0, 0], Answer.NO_CHANGE),
    ],
)
def test_counted_numbers_are_compared_exactly(base: list, new: list, answer: Answer):
    assert counts.judge(COUNTS["step_operations"], base, new).answer is answer


@pytest.mark.parametrize(
    ("new", "answer"),
    [
        ([100.1, 99.9, 100.0, 100.2, 99.8], Answer.NO_CHANGE),
        ([102.1, 101.9, 102.0, 102.2, 101.8], Answer.REGRESSION),
        ([98.1, 97.9, 98.0, 98.2, 97.8], Answer.IMPROVEMENT),
        ([100.9, 100.7, 100.8, 101.0, 100.6], Answer.CANNOT_TELL),  # within 1 %, not surely
        ([102, 130, 70, 110, 98], Answer.CANNOT_TELL),
        ([102.0, 102.0, 102.0, 102.0], Answer.CANNOT_TELL),  # too few
        ([100.0, 100.0, 100.0, 100.0, 100.0], Answer.NO_CHANGE),
    ],
)
def test_numbers_with_a_spread_need_a_significant_difference(new: list[float], answer: Answer):
    found = counts.judge(SPREAD, [100.0, 100.1, 99.9, 100.2, 99.8], new)
    assert found.answer is answer, found


def test_significance_is_corrected_for_all_comparisons():
    base, new = [100, 100.5, 99.5, 101, 99], [102, 102.5, 101.5, 103, 101]
    assert counts.judge(SPREAD, base, new).answer is Answer.REGRESSION
    assert counts.judge(SPREAD, base, new, 1000).answer is Answer.CANNOT_TELL


def test_equal_numbers_on_each_side_are_a_known_difference():
    found = counts.judge(SPREAD, [100.0] * 5, [105.0] * 5, 1000)
    assert (found.answer, found.low, found.high) == (Answer.REGRESSION, 5, 5)


def test_a_side_without_a_number_is_refused():
    with pytest.raises(ValueError, match="a side has no number"):
        counts.judge(SPREAD, [], [1.0])


@pytest.mark.parametrize(
    ("name", "differing", "answer"),
    [
        ("step_operations", ("tensorflow",), Answer.CANNOT_TELL),
        ("step_collectives", ("tensorflow",), Answer.REGRESSION),
        ("step_collectives", ("trainer",), Answer.CANNOT_TELL),
        ("step_operations", ("backend",), Answer.REGRESSION),
        ("step_operations", (), Answer.REGRESSION),
    ],
)
def test_a_difference_that_others_explain_is_not_judged(
    name: str, differing: Sequence[str], answer: Answer
):
    found = counts.judge(COUNTS[name], [1], [2])
    assert counts.expected(COUNTS[name], found, differing).answer is answer


# --- in pairs of processes -----------------------------------------------------------------------


def counted(metric: str, by_side: Mapping[str, Sequence[float]], **new: Any) -> list[dict]:
    return [
        row(f"paired_{metric}", value, variant=side, repeat=i, **(new if side == "new" else {}))
        for side, values in by_side.items()
        for i, value in enumerate(values)
    ]


def outcome(*rows: list[dict], **new: Any) -> command.Outcome:
    series = pairs.series(measured(turns(1.0, 12, **new), *rows))
    return command.Outcome(series, pairs.answers_of(series))


def test_a_doubled_collective_is_a_regression_at_the_same_step_time():
    changed = outcome(counted("step_collectives", {"base": [2] * 12, "new": [4] * 12}))
    assert changed.answers == [Answer.NO_CHANGE]
    assert changed.exit_code(strict=False) == 1
    _, table = changed.tables()
    assert table.rows[0].cells == ("collectives", "2 → 4", "2", "regression")
    (written,) = json.loads(changed.to_json())
    assert written["counts"]["step_collectives"]["answer"] == "regression"
    same = outcome(counted("step_collectives", {"base": [2] * 12, "new": [2] * 12}))
    assert (same.exit_code(strict=True), len(same.tables())) == (0, 1)


def test_a_leak_is_a_regression():
    noise = [20_000 * math.sin(i) for i in range(12)]
    by_side = {"base": noise, "new": [200_000 + value for value in noise]}
    found = outcome(counted("heap_growth_bytes_per_step", by_side))
    assert found.exit_code(strict=False) == 1
    cells = found.tables()[1].rows[0].cells
    assert cells[0] == "bytes that the heap grows"
    assert cells[2].startswith("200,000 (")


def test_operations_of_another_tensorflow_are_not_judged():
    rows = counted("step_operations", {"base": [2] * 12, "new": [4] * 12})
    found = outcome(rows, tensorflow="2.99.0")
    assert found.exit_code(strict=False) == 0
    assert "the sides differ in tensorflow" in found.tables()[1].rows[0].cells[3]


def test_a_number_of_one_side_is_not_compared():
    (series,) = pairs.series(measured(turns(1.0), counted("retracings", {"base": [0] * 12})))
    assert not series.counts
    merged = pairs.merged([series, series])
    assert not merged.counts


def test_pairs_of_several_measurements_are_judged_together():
    rows = counted("retracings", {"base": [0] * 12, "new": [1] * 12})
    (series,) = pairs.series(measured(turns(1.0), rows))
    assert pairs.merged([series, series]).counts["retracings"]["new"] == [1] * 24


# --- between two runs ----------------------------------------------------------------------------


def number(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    return {
        **made_up_run.COMMON,
        "test": made_up_run.test_id(
            "conformance", "accounting", "step_is_not_retraced", f"{MULTI}-tf_keras"
        ),
        "trainer": MULTI,
        "workers": 2,
        "metric": metric,
        "value": value,
        "unit": "1",
        "better": "lower",
        **columns,
    }


def test_the_gate_compares_counted_numbers_of_single_processes_on_other_machines():
    machine = {**made_up_run.INFO["machine"], "host": "another"}
    base = made_up_pair.side("a", [number("retracings", 0), number("step_collectives", 7)])
    rows = [number("retracings", 3), number("step_collectives", 7)]
    new = made_up_pair.side("b", rows, machine=machine)
    found = gate.compare(base, new)
    answers = {str(one.key["metric"]): one.answer for one in found.series}
    assert answers == {"retracings": Answer.REGRESSION, "step_collectives": Answer.NO_CHANGE}
    assert found.exit_code() == 1
    assert [one.answer for one in gate.counted(base, new)] == list(answers.values())


def test_the_gate_does_not_judge_operations_of_other_versions():
    versions = {**made_up_run.INFO["versions"], "tensorflow": "2.99.0"}
    base = made_up_pair.side("a", [number("step_operations", 7)])
    new = made_up_pair.side("b", [number("step_operations", 8)], versions=versions)
    (found,) = gate.counted(base, new)
    assert found.answer is Answer.CANNOT_TELL
    assert found.reason == "the sides differ in keras and tensorflow"


# --- in a report ---------------------------------------------------------------------------------


def test_a_report_has_a_line_for_each_approach(tmp_path: Path):
    rows = [number("step_operations", 383), number("wire_bytes_per_step", 705_719)]
    rows += [number("step_operations", 243, trainer=SINGLE, backend="none", workers=1)]
    verdict = made_up_run.verdict(SINGLE, "export", "loads")
    run = made_up_run.write_numbers(tmp_path / "run", made_up_run.INFO, rows, [verdict])
    found = {line.group.split(" ")[0]: line.cells[-2:] for line in section.table(run).rows}
    assert found == {MULTI: ("383", "705,719"), SINGLE: ("243", "")}
