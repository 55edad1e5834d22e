"""Tests that intervals and p-values hold their level, and that the four answers follow."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from reports.stats.ratio_tests import (
    FLOOR,
    LEAST_PAIRS,
    Answer,
    Effect,
    far_apart,
    judge,
    paired,
    scatter_of_turns,
    unpaired,
)

SERIES = 300
# Of 300 at 5 %: 3 to 33 misses, except once in 10,000 times.
FALSE = (3 / SERIES, 33 / SERIES)


def pairs(rng: np.random.Generator, count: int, change: float = 0.0, turns: int = 20) -> np.ndarray:
    """Return log ratios: pairs differ by 2 %, turns by heavy-tailed noise of 3 %."""
    own = rng.normal(change, 0.02, (count, 1))
    return own + 0.03 * rng.standard_t(3, (count, turns))


def run(rng: np.random.Generator, count: int, drift: float = 0.0, spread: float = 0.03):
    """Return one value for each process of a run whose level has drifted."""
    return 10 * np.exp(rng.normal(rng.normal(0, drift), spread, count))


def misses(effects: list[Effect]) -> tuple[float, float]:
    """Return the share of effects with p below 5 %, and the share whose interval excludes 1.

    The effects must be of identical code.
    """
    small = sum(effect.p < 0.05 for effect in effects)
    outside = sum(not effect.low <= 1 <= effect.high for effect in effects)
    return small / len(effects), outside / len(effects)


@pytest.mark.parametrize("count", [5, 12])
def test_paired_false_alarm_rate_holds_for_identical_code(count: int):
    rng = np.random.default_rng(count)
    small, outside = misses([paired(pairs(rng, count)) for _ in range(SERIES)])
    assert FALSE[0] <= small <= FALSE[1]
    assert 0 < outside <= FALSE[1]  # an interval may be too wide, within limits


@pytest.mark.parametrize(
    ("was", "now", "drift", "spread"),
    [(10, 10, 0, 0.03), (20, 5, 0, 0.12), (3, 3, 0.05, 0.03), (2, 2, 0.05, 0.05)],
    ids=["alike", "unequal", "drifting", "few"],
)
def test_unpaired_false_alarm_rate_holds_for_identical_code(was, now, drift, spread):
    rng = np.random.default_rng(was)
    small, outside = misses(
        [unpaired(run(rng, was, drift), run(rng, now, drift, spread), drift) for _ in range(SERIES)]
    )
    assert FALSE[0] <= small <= FALSE[1]
    assert FALSE[0] <= outside <= FALSE[1]


def test_ignored_drift_makes_identical_code_look_changed():
    rng = np.random.default_rng(1)
    small, _ = misses([unpaired(run(rng, 5, 0.05), run(rng, 5, 0.05)) for _ in range(SERIES)])
    assert small > 0.3


def test_p_value_equals_student_and_welch():
    from scipy import stats  # slow to import

    rng = np.random.default_rng(2)
    turns = pairs(rng, 6)
    centres = stats.trim_mean(turns, 0.25, axis=1)
    _, student = stats.ttest_1samp(centres, 0)
    assert paired(turns).p == pytest.approx(student)
    assert paired(turns).ratio == pytest.approx(math.exp(centres.mean()))
    was, now = run(rng, 4), run(rng, 9)
    _, welch = stats.ttest_ind(np.log(now), np.log(was), equal_var=False)
    assert unpaired(was, now).p == pytest.approx(welch)
    assert unpaired(was, now).ratio == pytest.approx(stats.gmean(now) / stats.gmean(was))


def test_drift_from_few_runs_widens_interval():
    rng = np.random.default_rng(3)
    was, now = run(rng, 5), 1.3 * run(rng, 5)
    by_constant, by_runs = unpaired(was, now, 0.05), unpaired(was, now, 0.05, drift_df=2)
    assert unpaired(was, now).p < by_constant.p < by_runs.p
    assert by_runs.low < by_constant.low < unpaired(was, now).low


def test_effect_is_inverse_for_swapped_sides():
    rng = np.random.default_rng(4)
    turns, was, now = pairs(rng, 10, 0.05), run(rng, 6), run(rng, 6)
    for there, back in ((paired(turns), paired(-turns)), (unpaired(was, now), unpaired(now, was))):
        assert there.ratio * back.ratio == pytest.approx(1)
        assert there.p == pytest.approx(back.p)
        assert there.low * back.high == pytest.approx(1, abs=0.02)  # its ends come from resampling


def test_burst_in_some_turns_has_no_effect():
    turns = np.full((8, 20), 0.001) * np.arange(-4, 4)[:, None]
    slowed = turns.copy()
    slowed[:, 3:7] += 1.0
    assert paired(slowed).ratio == pytest.approx(paired(turns).ratio, abs=0.001)


def test_interval_depends_on_processes_and_not_turns():
    rng = np.random.default_rng(5)
    widths = [np.ptp([e.low, e.high]) for e in (paired(pairs(rng, 8, turns=n)) for n in (20, 2000))]
    assert widths[1] > widths[0] / 4  # resampling of turns would give a tenth


def test_one_process_has_ratio_without_interval():
    for effect in (paired([[0.1, 0.1]]), unpaired([1.0], [2.0, 2.0, 2.1])):
        assert not effect.known
        assert math.isnan(effect.low)
        assert math.isnan(effect.high)
        assert effect.processes == 1
        assert judge(effect, "lower", 1) is Answer.CANNOT_TELL
    assert paired([[0.1, 0.1]]).ratio == pytest.approx(math.exp(0.1))


def test_p_value_without_scatter_is_that_of_random_labels():
    assert paired([[0.1] * 3] * 4).p == 2**-3
    assert unpaired([0.1] * 3, [0.2] * 3).p == 2 / 20
    assert unpaired([0.1] * 3, [0.1] * 4) == Effect(1, 1, 1, 1, 3)
    assert paired([[0.0] * 3] * 4) == Effect(1, 1, 1, 1, 4)


def test_effect_is_deterministic_and_fast():
    turns = pairs(np.random.default_rng(6), 16, turns=60)
    begin_s = time.process_time()
    first, second = paired(turns), paired([list(row) for row in turns])
    assert first == second
    assert paired(turns, seed=2).low != first.low
    assert time.process_time() - begin_s < 3 * 60 / 1600  # 1,600 series within a minute


@pytest.mark.parametrize(
    "call",
    [
        lambda: paired([]),
        lambda: paired([[0.1], []]),
        lambda: paired([[0.1, math.nan]]),
        lambda: unpaired([], [1.0]),
        lambda: unpaired([1.0, 0.0], [1.0, 1.0]),
        lambda: unpaired([1.0, 1.0], [1.0, -1.0]),
        lambda: unpaired([1.0, math.inf], [1.0, 1.0]),
        lambda: unpaired([1.0], [1.0], drift=-0.1),
        lambda: unpaired([1.0], [1.0], drift=math.nan),
        lambda: judge(Effect(1, 1, 1, 1, 5), "faster", 1),
        lambda: judge(Effect(1, 1, 1, 1, 5), "lower", 0),
        lambda: judge(Effect(1, 1, 1, 1, 5), "lower", 1, floor=-0.1),
    ],
)
def test_values_without_ratio_are_rejected(call):
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        call()


SLOWER = Effect(1.10, 1.08, 1.12, 1e-6, 10)
ANSWERS = [
    (SLOWER, "lower", 1600, Answer.REGRESSION),
    (SLOWER, "higher", 1600, Answer.IMPROVEMENT),
    (SLOWER, "none", 1600, Answer.CANNOT_TELL),
    (Effect(0.90, 0.88, 0.92, 1e-6, 10), "lower", 1600, Answer.IMPROVEMENT),
    (Effect(0.90, 0.88, 0.92, 1e-6, 10), "higher", 1600, Answer.REGRESSION),
    (Effect(1.10, 1.08, 1.12, 1e-4, 10), "lower", 1600, Answer.CANNOT_TELL),  # one of many
    (Effect(1.10, 1.08, 1.12, 1e-4, 10), "lower", 1, Answer.REGRESSION),
    (Effect(1.10, 0.99, 1.21, 1e-6, 10), "lower", 1, Answer.CANNOT_TELL),  # the interval has 1
    (Effect(1.019, 1.012, 1.03, 1e-6, 10), "lower", 1, Answer.CANNOT_TELL),  # below the floor
    (Effect(1.01, 1.005, 1.015, 1e-9, 10), "lower", 1, Answer.NO_CHANGE),  # certain, and too small
    (Effect(1.00, 0.985, 1.015, 0.9, 10), "none", 1600, Answer.NO_CHANGE),
    (Effect(1.00, 0.975, 1.015, 0.9, 10), "lower", 1, Answer.CANNOT_TELL),
    (Effect(1.00, 0.985, 1.025, 0.9, 10), "lower", 1, Answer.CANNOT_TELL),
    (Effect(1.50, math.nan, math.nan, math.nan, 1), "lower", 1, Answer.CANNOT_TELL),
]


@pytest.mark.parametrize(("effect", "better", "comparisons", "answer"), ANSWERS)
def test_answer_follows_from_floor_interval_and_p(effect, better, comparisons, answer):
    assert judge(effect, better, comparisons) is answer


def test_higher_floor_requires_larger_change():
    assert judge(SLOWER, "lower", 1, floor=0.12) is Answer.NO_CHANGE
    assert judge(SLOWER, "lower", 1, floor=0.11) is Answer.CANNOT_TELL
    assert judge(SLOWER, "lower", 1, floor=FLOOR) is Answer.REGRESSION


def test_scatter_of_turns_excludes_effect_of_first_turn():
    rng = np.random.default_rng(5)
    quiet = [rng.normal(0, 0.01, 60) for _ in range(40)]
    alone = scatter_of_turns(quiet)
    assert alone == pytest.approx(np.std([paired([t]).ratio for t in quiet]), rel=0.3)
    first_is_slower = [turns + 0.1 * (-1) ** np.arange(60) for turns in quiet]
    assert scatter_of_turns(first_is_slower) < 2 * alone


def test_far_apart_only_if_turns_do_not_explain_it():
    rng = np.random.default_rng(6)

    def found(processes: float, count: int) -> bool:
        sides = rng.permutation([1, -1] * 20)[:count]
        return far_apart([rng.normal(side * processes, 0.08, 60) for side in sides])

    assert not any(found(0.0, 20) for _ in range(200))
    assert not any(found(0.01, 20) for _ in range(200))  # a change of the size of the turns' noise
    assert all(found(0.08, 20) for _ in range(200))
    assert not found(0.08, LEAST_PAIRS - 1)
