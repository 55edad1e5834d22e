"""Tests that the gate's trials find known effects in made-up records and fail a broken gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports import __main__ as command
from reports.ab import gate_trials, pairs
from reports.rundir import frame
from reports.stats import ratio_tests
from reports.stats.ratio_tests import Answer
from suite.meta import made_up_pair, made_up_run

COMPARISONS = 20
LATER = "2026-01-02T05:34:05Z"  # 2.5 hours after the others


def turns(own: float, burst: float, count: int = 12, length: int = 40) -> Iterator[dict[str, Any]]:
    """Yield turns of pairs of processes that differ by `own`; one turn in twenty has a `burst`."""
    rng = np.random.default_rng(7)
    for repeat in range(count):
        for variant in pairs.SIDES:
            level = 0.02 * np.exp(rng.normal(0, own))
            noise = 0.01 * rng.standard_t(3, length) + burst * (rng.random(length) < 0.05)
            for value in level * np.exp(noise):
                columns = {"variant": variant, "repeat": repeat, "metric": pairs.TIME}
                yield from turn(value, **columns)


def turn(value: float, **columns: Any) -> Iterator[dict[str, Any]]:
    for row in made_up_pair.step_times({"paired": [value]}):
        yield {**row, "trainer": made_up_run.SINGLE, "backend": "none", **columns}


def tried(*rows: dict[str, Any], seed: int = 1) -> tuple[list[str], bool]:
    found = gate_trials.recorded([made_up_pair.run("recorded", rows)])
    return gate_trials.summary(
        found, gate_trials.run_trials(gate_trials.pools(found), COMPARISONS, seed)
    )


QUIET = list(turns(own=0.004, burst=0.5))
LOUD = list(turns(own=0.15, burst=0.5))


def test_on_a_quiet_machine_all_is_found_and_nothing_else():
    lines, stands = tried(*QUIET)
    assert stands
    assert lines[0].startswith("As measured: alarms in 0 of 1 (")
    assert lines[1].startswith("Resampled: alarms in 0 of 20 (0 %, 95 % interval 0 to 16.8 %)")
    assert lines[2].startswith("Resampled: slower by 5 % found in 20 of 20 (100 %, ")
    assert lines[3].startswith("Resampled: slower by 10 % found in 20 of 20 (100 %, ")
    assert lines[4].startswith("Stands: judged among 1,600 comparisons, floor 2 %")


def test_planted_comparisons_are_counted_apart_and_not_resampled():
    slower = [
        {**row, "test": f"{row['test']}-slow", "fault": "10 % slower", "value": row["value"] * 1.1}
        if row["variant"] == "new"
        else {**row, "test": f"{row['test']}-slow"}
        for row in QUIET
    ]
    lines, stands = tried(*QUIET, *slower)
    assert stands
    assert lines[0].startswith("As measured: alarms in 0 of 1 (")
    assert lines[1].startswith("As measured: slower by 10 % found in 1 of 1 (100 %, ")
    assert lines[2].startswith("Resampled: alarms in 0 of 20")


def test_where_processes_differ_too_much_slowdowns_are_missed_and_nothing_cries_wolf():
    lines, stands = tried(*LOUD)
    assert not stands
    assert "alarms in 0 of 20" in lines[1]
    assert "found in 0 of 20" in lines[2]
    assert lines[4].startswith("Falls")


JUDGE = ratio_tests.judge


def cries_wolf(effect: ratio_tests.Effect, *_: Any, **__: Any) -> Answer:
    return Answer.REGRESSION if effect.ratio > 1 else Answer.IMPROVEMENT


def sleeps(*_: Any, **__: Any) -> Answer:
    return Answer.CANNOT_TELL


def takes_worse_for_better(
    effect: ratio_tests.Effect, _: str, *others: Any, **named: Any
) -> Answer:
    return JUDGE(effect, "higher", *others, **named)


@pytest.mark.parametrize(
    ("broken", "line", "said"),
    [
        (cries_wolf, 1, "alarms in 20 of 20"),
        (sleeps, 3, "found in 0 of 20"),
        (takes_worse_for_better, 2, "found in 0 of 20"),
    ],
)
def test_a_broken_gate_makes_the_trials_fall(monkeypatch: Any, broken: Any, line: int, said: str):
    monkeypatch.setattr(ratio_tests, "judge", broken)
    lines, stands = tried(*QUIET)
    assert not stands
    assert said in lines[line]


def test_resampled_pairs_are_those_recorded_with_sides_by_lot():
    (series,) = gate_trials.pools(gate_trials.recorded([made_up_pair.run("recorded", LOUD)]))
    drawn = series.resampled(np.random.default_rng(1), 0.0)
    assert [len(pair) for pair in drawn] == [40] * 12
    known = {abs(value) for pair in series.pairs for value in pair}
    assert all(abs(value) in known for pair in drawn for value in pair)
    signs = [np.isin(pair, np.concatenate(series.pairs)).all() for pair in drawn]
    assert 0 < sum(signs) < 12


def test_neighbours_stay_neighbours_in_blocks():
    one = gate_trials.Pool("counted", 1, (2,), (np.arange(100.0), np.arange(100.0)))
    steps = np.diff(np.abs(one.resampled(np.random.default_rng(1), 0.0)[0]))
    assert (steps == 1).mean() >= 0.9


def test_records_of_code_that_differs_make_the_trials_fall():
    slower = [{**row, "value": row["value"] * 1.2} for row in QUIET if row["variant"] == "new"]
    lines, stands = tried(*(row for row in QUIET if row["variant"] == "base"), *slower)
    assert "alarms in 1 of 1 (" in lines[0]
    assert not stands


def test_comparisons_are_dealt_out_over_all_set_ups():
    other = [{**row, "backend": "auto"} for row in QUIET]
    again = [{**row, "test": f"{row['test']}-2"} for row in QUIET]
    found = gate_trials.recorded([made_up_pair.run("recorded", [*QUIET, *other, *again])])
    done = gate_trials.run_trials(gate_trials.pools(found), 3, seed=1)
    assert [one.comparisons for one in done] == [2, 1]
    assert {row.cells[:3] for row in gate_trials.table(done).rows} == {
        ("single_process · tf_keras 2.21.0, auto, 2 workers, Made-up CPU @ 2 GHz", "1", "12"),
        ("single_process · tf_keras 2.21.0, 2 workers, Made-up CPU @ 2 GHz", "2", "24"),
    }


@pytest.mark.parametrize(
    "other",
    [{"machine": {**made_up_run.INFO["machine"], "cpu": "Another"}}, {"spawn": "exec"}],
    ids=str,
)
def test_what_was_measured_elsewhere_or_otherwise_is_resampled_apart(other: dict[str, Any]):
    runs = [made_up_pair.run("one", QUIET), made_up_pair.run("other", QUIET, **other)]
    assert [len(pool.pairs) for pool in gate_trials.pools(gate_trials.recorded(runs))] == [12, 12]
    again = [made_up_pair.run("one", QUIET), made_up_pair.run("two", QUIET)]
    assert [len(pool.pairs) for pool in gate_trials.pools(gate_trials.recorded(again))] == [24]


def test_pairs_of_a_comparison_that_broke_are_no_trial():
    broke = {**made_up_pair.verdict_rows(loads="failed")[0], "test": QUIET[0]["test"]}
    with pytest.raises(frame.BadInput, match="a comparison in recorded broke"):
        gate_trials.recorded([made_up_pair.run("recorded", QUIET, [broke])])


def test_a_comparison_is_drawn_as_long_as_one_is_measured():
    quiet, loud = (
        gate_trials.pools(gate_trials.recorded([made_up_pair.run("recorded", rows)]))[0]
        for rows in (QUIET, LOUD)
    )
    rng = np.random.default_rng(1)
    assert len(quiet.resampled(rng, 0.0)) < len(loud.resampled(rng, 0.0)) == loud.most[0]


def test_no_comparison_is_drawn_longer_than_the_recorded_ones_are():
    few = [{**row, "test": f"{row['test']}-2"} for row in LOUD if row["repeat"] < 3]
    (pool,) = gate_trials.pools(gate_trials.recorded([made_up_pair.run("recorded", [*LOUD, *few])]))
    rng = np.random.default_rng(1)
    assert {len(pool.resampled(rng, 0.0)) for _ in range(40)} == {3, 12}


def test_a_comparison_that_ended_early_says_nothing_of_what_its_budget_had_time_for():
    agreed = [{**row, "test": f"{row['test']}-2"} for row in QUIET if row["repeat"] < 11]
    for rows, most in (([*LOUD, *agreed], (12,)), ([*QUIET, *agreed], (12,))):
        (pool,) = gate_trials.pools(gate_trials.recorded([made_up_pair.run("recorded", rows)]))
        assert pool.most == most


def test_it_says_how_far_apart_the_comparisons_are():
    later = [
        {**row, "test": f"{row['test']}-2", "value": 1.3 * row["value"], "time": LATER}
        for row in QUIET
    ]
    found = gate_trials.pools(
        gate_trials.recorded([made_up_pair.run("recorded", [*QUIET, *later])])
    )
    (line,) = gate_trials.table(gate_trials.run_trials(found, 2, seed=1)).rows
    assert line.cells[5:7] == ("19 %", "2.50")


def test_it_tells_what_differs_from_process_to_process_and_what_from_turn_to_turn():
    def told(own: float) -> tuple[float, float]:
        made_up = list(turns(own, burst=0.5, count=40))
        found = gate_trials.pools(gate_trials.recorded([made_up_pair.run("recorded", made_up)]))
        (line,) = gate_trials.table(gate_trials.run_trials(found, 2, seed=1)).rows
        every, of_turns = (float(cell.removesuffix(" %")) for cell in line.cells[3:5])
        return every, of_turns

    every, of_turns = told(own=0.0)
    assert 0.7 < every / of_turns < 1.4
    every, of_turns_too = told(own=0.04)
    assert 0.7 < every / (4.0 * 2**0.5) < 1.4  # percent, of both sides
    assert of_turns_too == of_turns


def test_an_upgrade_is_no_comparison_of_identical_code():
    rows = [{**row, "tensorflow": "2.22.0"} if row["variant"] == "new" else row for row in QUIET]
    with pytest.raises(frame.BadInput, match="are not in pairs"):
        gate_trials.recorded([made_up_pair.run("recorded", rows)])


def test_the_command_prints_rates_and_the_seed_decides(tmp_path: Path, capsys: Any):
    record = str(made_up_pair.write(tmp_path / "recorded", LOUD))
    printed = []
    for seed in ("1", "1", "2"):
        arguments = ["trials", record, "--comparisons", "8", "--seed", seed]
        assert command.main([*arguments, "--format", "md"]) == 1
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "single_process · tf" in printed[0]
    quiet = str(made_up_pair.write(tmp_path / "quiet", QUIET))
    assert command.main(["trials", quiet, "--comparisons", "8"]) == 0
    assert "Stands" in capsys.readouterr().out


BAD = [
    (list(made_up_pair.step_times({"p50": [1.0]})), "holds no paired_step_time_s"),
    ([row for row in QUIET if row["repeat"] == 0], "1 pair of processes, at least 2"),
    ([row for row in QUIET if row["variant"] == "base"], "are not in pairs"),
    ([*QUIET, {**QUIET[0], "variant": "old"}], "variant 'old'"),
    ([*QUIET, {**QUIET[0], "value": 0.0}], "value 0, not base or new and more than 0 s"),
]


@pytest.mark.parametrize(("rows", "message"), BAD, ids=[row[1] for row in BAD])
def test_what_are_no_records_is_refused(rows: list[dict[str, Any]], message: str):
    with pytest.raises(frame.BadInput, match=message):
        gate_trials.recorded([made_up_pair.run("recorded", rows)])
