"""Tests of metrics on histories with known numbers, and of pytest-benchmark on recorded times."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reference_trainers import BY_NAME
from suite.benchmarks import test_throughput, training_runs
from suite.benchmarks.recorded_clock import RecordedClock
from suite.benchmarks.time_budget import SpareTime, interleaved, passes
from suite.harness.core.case import Case
from suite.harness.core.history import Event, Run, in_order
from suite.harness.core.paths import ROOT
from suite.harness.core.single_flight import SingleFlight
from suite.harness.metrics.bootstrap import Interval, bootstrap, mean_ratio, ratio_of_medians
from suite.harness.metrics.throughput import timed_steps, warm_up
from suite.harness.pytest_plugin.fixtures import WATCHED
from suite.meta.fakes import SINGLE, FakeCase, data_file

TOGETHER = BY_NAME["keras_multi_worker_mirrored"]
EACH_ON_ITS_OWN = BY_NAME["supervisor_parameter_server"]


def made_up(
    times_s: Mapping[str, Sequence[float]], trainer=TOGETHER, examples: int | None = 64
) -> Run:
    """Return a run of workers whose steps ended at these times."""
    events = [
        Event("step", time_s, worker, 0, {"step": i, "examples": examples})
        for worker, ends in times_s.items()
        for i, time_s in enumerate(ends, start=1)
    ]
    workers = tuple(times_s)
    return Run(trainer, workers, workers, "ring", "none", in_order(events))


def test_synchronous_workers_make_each_step_once():
    ends = [0.0, 5.0, 5.5, 6.0, 6.5, 7.0]  # the first two are slow, then 0.5 s each
    late = [time_s + 0.01 for time_s in ends]
    steps = timed_steps(made_up({"worker/0": ends, "worker/1": late}))
    assert steps.steps_per_s == pytest.approx(2.0)
    assert steps.examples_per_s == pytest.approx(2.0 * 64 * 2)
    assert steps.times_s == pytest.approx([0.5] * len(steps.times_s))


def test_examples_that_no_one_reports_are_the_requested_batch_or_unknown():
    ends = {"worker/0": [0.0, 1.0, 2.0, 3.0, 4.0], "worker/1": [0.0, 1.0, 2.0, 3.0, 4.0]}
    run = made_up(ends, examples=None)
    unknown, known = timed_steps(run), timed_steps(replace(run, flags={"batch-size": 8}))
    assert unknown.examples_per_s is None
    assert "throughput_examples_per_s" not in [name for name, *_ in unknown.measurements()]
    assert known.examples_per_s == pytest.approx(16.0)


def test_one_process_is_a_cluster_of_one():
    single = BY_NAME["single_process"]
    steps = timed_steps(made_up({"worker/0": [0, 9, 10, 12, 15, 17]}, single, examples=10))
    assert steps.times_s == pytest.approx([1, 2, 3, 2])
    assert steps.steps_per_s == pytest.approx(0.5)
    assert steps.examples_per_s == pytest.approx(5)
    assert steps.quantile_s(50) == pytest.approx(2)


def test_asynchronous_workers_add_up():
    fast = [i * 0.1 for i in range(101)]
    slow = [i * 0.2 for i in range(51)]
    run = made_up({"worker/0": fast, "worker/1": slow}, EACH_ON_ITS_OWN)
    assert timed_steps(run).steps_per_s == pytest.approx(10 + 5)
    assert timed_steps(run).examples_per_s == pytest.approx(15 * 64)


def test_a_step_that_aggregates_the_gradients_of_all_counts_once():
    ends = [i * 0.1 for i in range(101)]
    run = made_up({"worker/0": ends, "worker/1": ends}, BY_NAME["sync_replicas_parameter_server"])
    assert timed_steps(run).steps_per_s == pytest.approx(10)
    assert timed_steps(run).examples_per_s == pytest.approx(20 * 64)


def test_clusters_side_by_side_are_timed_while_all_of_them_train():
    """Each cluster is three times as fast while it is alone, before the other and after it."""
    early = [*(i * 0.1 for i in range(20)), *(2 + i * 0.3 for i in range(21))]
    late = [*(2 + i * 0.3 for i in range(21)), *(8 + i * 0.1 for i in range(1, 20))]
    runs = [made_up({"worker/0": ends}, examples=3) for ends in (early, late)]
    assert timed_steps(runs[1]).steps_per_s > 4
    for run, other in (runs, runs[::-1]):
        steps = timed_steps(run, [other])
        assert steps.steps_per_s == pytest.approx(1 / 0.3)
        assert steps.examples_per_s == pytest.approx(10)


def test_who_is_slow_first_does_not_leave_another_without_steps():
    """The early run has the processors first: most of its steps end before those of the other."""
    late = [0.0, *(9.0 + 0.02 * i for i in range(40))]
    early = [*(0.02 * i for i in range(40)), 9.0, 9.9]
    runs = [made_up({"worker/0": ends}, EACH_ON_ITS_OWN) for ends in (late, early)]
    kept = [len(timed_steps(run, runs).times_s) for run in runs]
    assert kept[0] >= 20
    assert kept[1] >= 20


def test_early_worker_trains_until_its_peers_have_trained_too(fake_engine, tmp_path: Path):
    """Five steps of a fake take so little time that none would be left for the second cluster."""
    engine = replace(fake_engine, defaults={"data": data_file(tmp_path)})
    made = training_runs.side_by_side(FakeCase(engine, tmp_path, SINGLE), 5, 2)
    runs = [one.run for one in made]
    for run in runs:
        assert len(timed_steps(run, runs).times_s) >= 3


def test_a_coordinator_s_rounds_are_timed_as_a_whole():
    """A coordinator reports all steps of a round at once, so times between steps mean nothing."""
    ends = {0.0: 20, 4.0: 20, 8.0: 20, 10.0: 20, 12.0: 20, 14.0: 20}
    events = [Event("executed", t, "chief/0", 0, {"steps": n, "by": {}}) for t, n in ends.items()]
    events += [
        Event("step", t, "chief/0", 0, {"examples": 64}) for t, n in ends.items() for _ in [n]
    ]
    tasks = ("chief/0", "ps/0", "worker/0", "worker/1")
    trainer = BY_NAME["coordinator_parameter_server"]
    run = Run(trainer, tasks, tasks[2:], "none", "none", in_order(events))
    steps = timed_steps(run)
    assert steps.times_s == pytest.approx([0.1] * 3)  # the two of 0.2 s were warm-up
    assert steps.steps_per_s == pytest.approx(10)
    assert steps.examples_per_s == pytest.approx(640)
    with pytest.raises(ValueError, match="reported 1 x `executed`, at least 2"):
        timed_steps(replace(run, events=in_order(events[:1])))


def test_epochs_are_timed_where_no_steps_are_reported():
    events = [Event("epoch", t, "chief/0", 0, {"steps": 20}) for t in (0.0, 4.0, 6.0, 8.0, 10.0)]
    trainer = BY_NAME["keras_parameter_server"]
    tasks = ("chief/0", "ps/0", "worker/0", "worker/1")
    run = Run(trainer, tasks, tasks[2:], "none", "none", in_order(events), {"batch-size": 32})
    steps = timed_steps(run)
    assert steps.times_s == pytest.approx([0.1] * 3)
    assert steps.examples_per_s == pytest.approx(320)


def test_what_a_worker_does_alone_does_not_count():
    """A worker makes 100 steps/s alone and 10 next to its peer. A mixture would be neither."""
    alone = [i * 0.01 for i in range(100)]
    together = [1 + i * 0.1 for i in range(50)]
    after = [5.9 + i * 0.01 for i in range(1, 100)]
    other = [1 + i * 0.1 for i in range(50)]
    run = made_up({"worker/0": alone + together + after, "worker/1": other}, EACH_ON_ITS_OWN)
    steps = timed_steps(run)
    assert steps.steps_per_s == pytest.approx(20)
    assert max(steps.times_s) == pytest.approx(0.1)
    assert min(steps.times_s) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("times_s", "problem"),
    [
        ({"worker/0": [1]}, "worker/0 made 1 steps, at least 2"),
        ({"worker/0": [1, 2, 3], "worker/1": []}, "worker/1 made 0 steps"),
        ({"worker/0": [1, 2, 3], "worker/1": [7, 8, 9]}, "while all workers trained"),
    ],
)
def test_too_few_steps_are_no_measurement(times_s, problem):
    with pytest.raises(ValueError, match=problem):
        timed_steps(made_up(times_s))


def test_slow_beginnings_are_left_out():
    steady = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0] * 4
    assert warm_up([9.0, 4.0, *steady], 10) == 2


def test_what_is_steady_is_kept():
    assert warm_up([1.0] * 30, 10) == 0
    assert warm_up([9.0] * 3 + [1.0] * 8, 10) == 1, "ten must be left"


def test_warm_up_is_at_most_half_of_a_series_with_a_quiet_tail():
    """The standard error of the mean falls with each value that is dropped."""
    times_s = [1.0 + 0.5**i for i in range(20)]
    assert warm_up(times_s, 4) == 10


def test_measurements_of_steps_carry_units_and_direction():
    steps = timed_steps(made_up({"worker/0": [0, 1, 2, 3, 4]}))
    assert list(steps.measurements()) == [
        ("throughput_steps_per_s", 1.0, "1/s", "higher"),
        ("throughput_examples_per_s", 64.0, "examples/s", "higher"),
        ("step_time_p50_s", 1.0, "s", "lower"),
        ("step_time_p90_s", 1.0, "s", "lower"),
        ("step_time_p99_s", 1.0, "s", "lower"),
    ]


def test_ratio_of_medians_covers_what_it_was_made_from():
    slow, fast = [2.0, 2.1, 1.9, 2.2, 1.8] * 3, [1.0, 1.1, 0.9, 1.05, 0.95] * 3
    found = ratio_of_medians(slow, fast)
    assert found.estimate == pytest.approx(2.0)
    assert 1.7 < found.low < 2.0 < found.high < 2.4


def test_mean_ratio_does_not_favor_a_direction():
    assert mean_ratio([2.0, 0.5, 4.0, 0.25]).estimate == pytest.approx(1.0)


def test_bootstrap_gives_the_same_interval_for_the_same_input():
    values = [1.0, 1.01, 0.99, 1.02, 0.98, 1.005]
    assert mean_ratio(values) == mean_ratio(values)
    assert mean_ratio([1.25] * 10).low == pytest.approx(1.25)


def test_bootstrap_interval_is_95_percent():
    """The interval of the mean of many values agrees with theory."""
    values = list(range(400))
    found = bootstrap(lambda a, axis: a.mean(axis=axis), values)
    half = 1.96 * (400 / 12**0.5) / 400**0.5
    assert found.high - found.estimate == pytest.approx(half, rel=0.1)
    assert found.estimate - found.low == pytest.approx(half, rel=0.1)


def test_an_interval_is_three_measurements():
    assert dict(Interval(2.0, 1.5, 2.5).named("ratio")) == {
        "ratio": 2.0,
        "ratio_low": 1.5,
        "ratio_high": 2.5,
    }


def test_recorded_clock_passes_recorded_times_once():
    clock = RecordedClock()
    assert clock.load([0.1, 0.2]) == 2
    passed = []
    for _ in range(3):
        before = clock()
        clock.replay()
        passed.append(clock() - before)
    assert passed == pytest.approx([0.1, 0.2, 0.0])


BENCHMARK = """
import pytest
from suite.benchmarks.recorded_clock import RecordedClock

CLOCK = RecordedClock()

@pytest.mark.parametrize("end", [None, "unsupported"])
@pytest.mark.benchmark(group="step time", timer=CLOCK)
def test_steps(benchmark, end):
    benchmark.extra_info["collective"] = "ring"
    benchmark.pedantic(CLOCK.replay, rounds=CLOCK.load({times}))
    if end:
        raise RuntimeError(end)
"""


def benchmarked(directory: Path, times: list[float], *options: str) -> subprocess.CompletedProcess:
    """Run the benchmark above on these times, in its own pytest process."""
    (directory / "test_steps.py").write_text(BENCHMARK.format(times=times))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--rootdir", str(directory), "-c", os.devnull, str(directory / "test_steps.py")]
    # pytest-benchmark measures nothing under pytest-xdist, and this may be an xdist worker.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [*command, "--benchmark-storage", str(directory / "saved"), *options],
        cwd=directory,
        env={**inherited, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_pytest_benchmark_stores_and_compares_recorded_times(tmp_path: Path):
    path = tmp_path / "first.json"
    first = benchmarked(
        tmp_path, [0.1, 0.3, 0.2], "--benchmark-json", str(path), "--benchmark-save=first"
    )
    stored = {b["name"]: b for b in json.loads(path.read_text())["benchmarks"]}
    ended_unsupported = stored["test_steps[unsupported]"]  # the values measured before it are kept
    assert ended_unsupported["stats"]["median"] == pytest.approx(0.2), first.stdout
    assert ended_unsupported["stats"]["rounds"] == 3
    assert ended_unsupported["stats"]["max"] == pytest.approx(0.3)
    assert ended_unsupported["extra_info"] == {"collective": "ring"}

    compare = ("--benchmark-compare", "--benchmark-compare-fail=median:5%")
    slower = benchmarked(tmp_path, [0.11, 0.33, 0.22], *compare)
    assert "Performance has regressed" in slower.stdout + slower.stderr


def test_the_row_says_whether_steps_are_made_together():
    ends = {"worker/0": [0, 1, 2, 3], "worker/1": [0, 1, 2, 3]}
    together = timed_steps(made_up(ends, replace(TOGETHER, synchronous=True)))
    apart = timed_steps(made_up(ends, replace(TOGETHER, synchronous=False)))
    assert apart.steps_per_s == pytest.approx(2 * together.steps_per_s)
    assert apart.examples_per_s == pytest.approx(together.examples_per_s)


@pytest.mark.parametrize(
    ("most", "budget_s", "took_s", "made"),
    [
        (3, 60, [10, 10, 10], 3),
        (3, 60, [100], 1),  # the first pass runs at any cost
        (3, 60, [25, 35], 2),
        (3, 60, [35, 10], 1),  # a second pass of that length would exceed the budget
        (5, 60, [10, 25, 10], 3),  # the longest pass counts, not the last
        (1, 60, [1], 1),
        (2, float("inf"), [1000, 1000], 2),
    ],
)
def test_passes_are_as_many_as_there_is_time_for(most, budget_s, took_s, made):
    assert gone_through(most, budget_s, took_s, SpareTime()) == made


def gone_through(most: int, budget_s: float, took_s: list[float], purse: SpareTime) -> int:
    """Return the number of passes that run when they take these times."""
    passed_s, numbers = [0.0], []
    for number in passes(most, budget_s, purse, lambda: sum(passed_s)):
        passed_s.append(took_s[number])
        numbers.append(number)
    assert numbers == list(range(len(numbers)))
    return len(numbers)


def test_what_one_benchmark_leaves_over_the_next_may_spend():
    purse = SpareTime()
    assert gone_through(1, 60, [10], purse) == 1
    assert gone_through(4, 20, [20, 20, 20, 20], purse) == 3  # of 70 s
    assert gone_through(2, 15, [20, 20], purse) == 1  # 10 s were left, and a pass takes 20 s


def test_what_one_benchmark_overran_is_not_taken_from_the_next():
    purse = SpareTime()
    assert gone_through(3, 10, [500], purse) == 1
    assert gone_through(3, 30, [10, 10, 10], purse) == 3


def test_a_pass_that_ends_its_test_leaves_nothing_over():
    purse = SpareTime(left_s=5)
    for _ in passes(3, 60, purse, lambda: 0.0):
        break
    assert purse.left_s == 5


def test_endless_time_is_not_left_over():
    purse = SpareTime()
    assert gone_through(2, math.inf, [1000, 1000], purse) == 2
    assert gone_through(2, 10, [20, 20], purse) == 1


def test_a_budget_that_is_spent_before_the_first_pass_has_one():
    ticks = itertools.count()
    assert list(passes(3, 0.0, SpareTime(), lambda: float(next(ticks)))) == [0]


def test_sides_are_interleaved_and_every_second_pass_reversed():
    order: list[str] = []

    def measure(side: str) -> int:
        order.append(side)
        return len(order)

    taken = interleaved(["a", "b", "c"], measure, lambda *_: False, range(3))
    assert "".join(order) == "abc" + "cba" + "abc"
    assert {side: one.get() for side, one in taken.items()} == {
        "a": [1, 6, 7],
        "b": [2, 5, 8],
        "c": [3, 4, 9],
    }


def test_finished_or_failed_sides_are_left_out():
    order: list[str] = []

    def measure(side: str) -> str:
        order.append(side)
        if side == "fails" and order.count(side) == 2:
            raise ValueError("no more")
        return side

    taken = interleaved(["a", "once", "fails"], measure, lambda side, _: side == "once", range(3))
    assert order == ["a", "once", "fails", "fails", "a", "a"]
    assert taken["a"].get() == ["a"] * 3
    assert taken["once"].get() == ["once"]
    for _ in range(2):
        with pytest.raises(ValueError, match="no more"):
            taken["fails"].get()


def test_backends_of_a_trainer_are_interleaved(monkeypatch, tmp_path):
    """The first test measures for its trainer's other backends, and for no other test."""
    mwms = BY_NAME["keras_multi_worker_mirrored"]
    own = [Case(mwms, backend, "tf_keras") for backend in ("auto", "ring", "nccl")]
    others = [replace(own[0], keras="keras3"), Case(BY_NAME["single_process"], "none", "tf_keras")]
    path = Path(test_throughput.__file__)

    def item(case: Case, name: str = "test_throughput", path: Path = path) -> Any:
        callspec = SimpleNamespace(params={"case": case})
        return SimpleNamespace(originalname=name, path=path, callspec=callspec, stash={})

    measured: list[Case] = []

    def measure(launch: Any) -> Any:
        measured.append(launch.case)
        return SimpleNamespace(run=SimpleNamespace(collective="ring"))

    monkeypatch.setattr(test_throughput, "train", measure)
    monkeypatch.setattr(test_throughput, "passes", lambda most, _: range(most - 1))
    tests = [item(case) for case in (others[0], *own, others[1])]
    elsewhere = [item(own[0], "test_of_something_else"), item(own[0], path=Path(__file__))]
    session: Any = SimpleNamespace(
        outcomes=SingleFlight(),
        settings=SimpleNamespace(full=True),
        has_gpus=lambda _: False,
        timing_lock=SimpleNamespace(held=True),
    )

    def ask(test: Any) -> Any:
        case = test.callspec.params["case"]
        among = SimpleNamespace(items=[*elsewhere, *tests])
        request: Any = SimpleNamespace(node=test, session=among, path=path)
        launch: Any = SimpleNamespace(case=case, directory=tmp_path)
        return test_throughput.by_backend(request, session, launch)

    _, auto, ring, nccl, _ = tests
    taken = ask(ring)
    # NCCL falls back to the ring here, and the ring is measured often enough under its own name.
    assert "".join(case.backend[0] for case in measured) == "arn" + "ra" + "ar"
    assert [len(taken[case].get()) for case in own] == [3, 3, 1]
    assert {case.keras for case in measured} == {"tf_keras"}
    assert ask(auto) is taken
    assert ask(nccl) is taken
    assert len(measured) == 7
    assert auto.stash[WATCHED] is ring.stash[WATCHED] is nccl.stash[WATCHED]
    ask(tests[0])
    assert measured[7:] == [others[0]] * 3


def test_passes_without_a_side_take_no_time_from_others():
    purse = SpareTime()
    numbers = passes(4, 60, purse, itertools.count(step=10).__next__)
    interleaved(["a"], str, lambda *_: True, numbers)
    assert purse.left_s == 20  # four passes, of 10 s each by this clock
