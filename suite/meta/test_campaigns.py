"""Tests of campaigns: files keep runs exactly, and trials of the gate fail a broken gate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.ab import pairs
from reports.history import soak
from reports.rundir import frame
from reports.stats import ratio_tests, run_levels
from reports.stats.ratio_tests import Answer
from suite.campaigns import __main__ as command
from suite.campaigns import gate_trials, growth_with_workers, parquet_file
from suite.meta import made_up_pair, made_up_run

made_up = made_up_run.made_up
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


def run_trials(*rows: dict[str, Any], seed: int = 1) -> tuple[list[str], bool]:
    found = gate_trials.read_comparisons([made_up_pair.run("recorded", rows)])
    return gate_trials.summary(
        found, gate_trials.run_trials(gate_trials.pools(found), COMPARISONS, seed)
    )


QUIET = list(turns(own=0.004, burst=0.5))
LOUD = list(turns(own=0.15, burst=0.5))


def test_trials_detect_all_slowdowns_on_quiet_machine():
    lines, acceptable = run_trials(*QUIET)
    assert acceptable
    assert lines[0].startswith("As measured: false alarms in 0 of 1 (")
    assert lines[1].startswith(
        "Resampled: false alarms in 0 of 20 (0 %, 95 % interval 0 to 16.8 %)"
    )
    assert lines[2].startswith("Resampled: slowdown of 5 % detected in 20 of 20 (100 %, ")
    assert lines[3].startswith("Resampled: slowdown of 10 % detected in 20 of 20 (100 %, ")
    assert lines[4].startswith("Passed: judged among 1,600 comparisons, floor 2 %")


def test_injected_slowdowns_are_counted_but_not_resampled():
    slower = [
        {**row, "test": f"{row['test']}-slow", "fault": "10 % slower", "value": row["value"] * 1.1}
        if row["variant"] == "new"
        else {**row, "test": f"{row['test']}-slow"}
        for row in QUIET
    ]
    lines, acceptable = run_trials(*QUIET, *slower)
    assert acceptable
    assert lines[0].startswith("As measured: false alarms in 0 of 1 (")
    assert lines[1].startswith("As measured: slowdown of 10 % detected in 1 of 1 (100 %, ")
    assert lines[2].startswith("Resampled: false alarms in 0 of 20")


def test_slowdowns_are_missed_where_processes_vary_more():
    lines, acceptable = run_trials(*LOUD)
    assert not acceptable
    assert "alarms in 0 of 20" in lines[1]
    assert "detected in 0 of 20" in lines[2]
    assert lines[4].startswith("Failed")


JUDGE = ratio_tests.judge


def always_alarms(effect: ratio_tests.Effect, *_: Any, **__: Any) -> Answer:
    return Answer.REGRESSION if effect.ratio > 1 else Answer.IMPROVEMENT


def never_answers(*_: Any, **__: Any) -> Answer:
    return Answer.CANNOT_TELL


def swaps_directions(effect: ratio_tests.Effect, _: str, *others: Any, **named: Any) -> Answer:
    return JUDGE(effect, "higher", *others, **named)


@pytest.mark.parametrize(
    ("broken", "line", "expected"),
    [
        (always_alarms, 1, "alarms in 20 of 20"),
        (never_answers, 3, "detected in 0 of 20"),
        (swaps_directions, 2, "detected in 0 of 20"),
    ],
)
def test_trials_fail_a_broken_gate(monkeypatch: Any, broken: Any, line: int, expected: str):
    monkeypatch.setattr(ratio_tests, "judge", broken)
    lines, acceptable = run_trials(*QUIET)
    assert not acceptable
    assert expected in lines[line]


def test_resampled_pairs_are_recorded_ones_with_random_sides():
    (series,) = gate_trials.pools(
        gate_trials.read_comparisons([made_up_pair.run("recorded", LOUD)])
    )
    drawn = series.resampled(np.random.default_rng(1), 0.0)
    assert [len(pair) for pair in drawn] == [40] * 12
    known = {abs(value) for pair in series.pairs for value in pair}
    assert all(abs(value) in known for pair in drawn for value in pair)
    signs = [np.isin(pair, np.concatenate(series.pairs)).all() for pair in drawn]
    assert 0 < sum(signs) < 12


def test_adjacent_turns_stay_adjacent_in_blocks():
    one = gate_trials.Pool("counted", 1, (2,), (np.arange(100.0), np.arange(100.0)))
    steps = np.diff(np.abs(one.resampled(np.random.default_rng(1), 0.0)[0]))
    assert (steps == 1).mean() >= 0.9


def test_trials_fail_on_comparisons_of_different_code():
    slower = [{**row, "value": row["value"] * 1.2} for row in QUIET if row["variant"] == "new"]
    lines, acceptable = run_trials(*(row for row in QUIET if row["variant"] == "base"), *slower)
    assert "alarms in 1 of 1 (" in lines[0]
    assert not acceptable


def test_resampled_comparisons_are_spread_over_setups():
    other = [{**row, "backend": "auto"} for row in QUIET]
    again = [{**row, "test": f"{row['test']}-2"} for row in QUIET]
    found = gate_trials.read_comparisons([made_up_pair.run("recorded", [*QUIET, *other, *again])])
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
def test_machines_and_conditions_are_resampled_separately(other: dict[str, Any]):
    runs = [made_up_pair.run("one", QUIET), made_up_pair.run("other", QUIET, **other)]
    assert [len(pool.pairs) for pool in gate_trials.pools(gate_trials.read_comparisons(runs))] == [
        12,
        12,
    ]
    again = [made_up_pair.run("one", QUIET), made_up_pair.run("two", QUIET)]
    assert [len(pool.pairs) for pool in gate_trials.pools(gate_trials.read_comparisons(again))] == [
        24
    ]


def test_failed_comparison_is_rejected():
    failed = {**made_up_pair.verdict_rows(loads="failed")[0], "test": QUIET[0]["test"]}
    with pytest.raises(frame.BadInput, match="a comparison in recorded failed"):
        gate_trials.read_comparisons([made_up_pair.run("recorded", QUIET, [failed])])


def test_resampled_comparison_ends_like_a_measured_one():
    quiet, loud = (
        gate_trials.pools(gate_trials.read_comparisons([made_up_pair.run("recorded", rows)]))[0]
        for rows in (QUIET, LOUD)
    )
    rng = np.random.default_rng(1)
    assert len(quiet.resampled(rng, 0.0)) < len(loud.resampled(rng, 0.0)) == loud.max_pairs[0]


def test_resampled_comparison_has_recorded_number_of_pairs():
    few = [{**row, "test": f"{row['test']}-2"} for row in LOUD if row["repeat"] < 3]
    (pool,) = gate_trials.pools(
        gate_trials.read_comparisons([made_up_pair.run("recorded", [*LOUD, *few])])
    )
    rng = np.random.default_rng(1)
    assert {len(pool.resampled(rng, 0.0)) for _ in range(40)} == {3, 12}


def test_early_end_does_not_limit_number_of_pairs():
    agreed = [{**row, "test": f"{row['test']}-2"} for row in QUIET if row["repeat"] < 11]
    for rows, max_pairs in (([*LOUD, *agreed], (12,)), ([*QUIET, *agreed], (12,))):
        (pool,) = gate_trials.pools(
            gate_trials.read_comparisons([made_up_pair.run("recorded", rows)])
        )
        assert pool.max_pairs == max_pairs


def test_table_shows_spread_of_levels_and_hours():
    later = [
        {**row, "test": f"{row['test']}-2", "value": 1.3 * row["value"], "time": LATER}
        for row in QUIET
    ]
    found = gate_trials.pools(
        gate_trials.read_comparisons([made_up_pair.run("recorded", [*QUIET, *later])])
    )
    (line,) = gate_trials.table(gate_trials.run_trials(found, 2, seed=1)).rows
    assert line.cells[5:7] == ("19 %", "2.50")


def test_table_separates_spread_of_processes_and_turns():
    def spreads(own: float) -> tuple[float, float]:
        rows = list(turns(own, burst=0.5, count=40))
        found = gate_trials.pools(
            gate_trials.read_comparisons([made_up_pair.run("recorded", rows)])
        )
        (line,) = gate_trials.table(gate_trials.run_trials(found, 2, seed=1)).rows
        of_pairs, of_turns = (float(cell.removesuffix(" %")) for cell in line.cells[3:5])
        return of_pairs, of_turns

    of_pairs, of_turns = spreads(own=0.0)
    assert 0.7 < of_pairs / of_turns < 1.4
    of_pairs, of_turns_of_varying = spreads(own=0.04)
    assert 0.7 < of_pairs / (4.0 * 2**0.5) < 1.4  # percent, of both sides
    assert of_turns_of_varying == of_turns


def test_comparison_of_two_versions_is_rejected():
    rows = [{**row, "tensorflow": "2.22.0"} if row["variant"] == "new" else row for row in QUIET]
    with pytest.raises(frame.BadInput, match="of base and new are not paired"):
        gate_trials.read_comparisons([made_up_pair.run("recorded", rows)])


def test_trials_command_repeats_its_output_for_a_seed(tmp_path: Path, capsys: Any):
    path = tmp_path / "campaign.parquet"
    for name, rows in (("loud", LOUD), ("quiet", QUIET)):
        made_up_pair.write(tmp_path / name, rows)
    assert command.main(["pack", str(path), str(tmp_path / "loud"), str(tmp_path / "quiet")]) == 0
    printed = []
    for seed in ("1", "1", "2"):
        arguments = ["trials", str(path), "--runs", "l*", "--comparisons", "8", "--seed", seed]
        assert command.main(arguments) == 1
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "single_process · tf" in printed[0]
    assert command.main(["trials", str(path), "--runs", "quiet", "--comparisons", "8"]) == 0
    assert "Passed" in capsys.readouterr().out


BAD = [
    (list(made_up_pair.step_times({"p50": [1.0]})), "has no paired_step_time_s"),
    ([row for row in QUIET if row["repeat"] == 0], "1 pair of processes, at least 2"),
    ([row for row in QUIET if row["variant"] == "base"], "of base and new are not paired"),
    ([*QUIET, {**QUIET[0], "variant": "old"}], "variant 'old'"),
    ([*QUIET, {**QUIET[0], "value": 0.0}], "value 0; expected variant base or new"),
]


@pytest.mark.parametrize(("rows", "message"), BAD, ids=[row[1] for row in BAD])
def test_invalid_comparison_is_rejected(rows: list[dict[str, Any]], message: str):
    with pytest.raises(frame.BadInput, match=message):
        gate_trials.read_comparisons([made_up_pair.run("recorded", rows)])


def test_unpacked_runs_equal_the_packed_ones(made_up: Path, tmp_path: Path):
    alone = tmp_path / "alone"  # only its run.json is kept
    alone.mkdir()
    info = json.loads((made_up / "run.json").read_text())
    (alone / "run.json").write_text(json.dumps({**info, "run_id": "alone"}))
    path = tmp_path / "campaign.parquet"
    parquet_file.pack(path, [alone, made_up])
    unpacked = parquet_file.unpack(path, tmp_path / "unpacked")
    assert [directory.name for directory in unpacked] == ["alone", info["run_id"]]
    assert [file.name for file in unpacked[0].iterdir()] == ["run.json"]
    assert soak.load(unpacked[0]) == soak.load(alone)
    expected, found = frame.load(made_up), frame.load(unpacked[1])
    assert found.info == expected.info
    assert found.histories() == expected.histories() != {}
    for name in parquet_file.TABLES:
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))


def test_pack_and_unpack_reject_invalid_input_in_one_line(tmp_path: Path, capsys: Any):
    path, text = tmp_path / "campaign.parquet", tmp_path / "text"
    text.write_text("text")
    run = made_up_run.write_small(tmp_path / "run")
    other = made_up_run.write_small(tmp_path / "other", status="interrupted", run_id="other")
    parquet_file.pack(path, [run])
    for arguments, message in (
        (["pack", str(path), str(run), str(run)], "is given more than once"),
        (["pack", str(path), str(other)], "is an interrupted run"),
        (["pack", str(path), str(tmp_path)], "neither a run.json nor a directory"),
        (["unpack", str(text), str(tmp_path)], "is not a campaign"),
        (["trials", str(path), "--runs", "none*"], "has no run none*"),
        (["drift", str(path)], "5 or more runs are needed"),
        (["workers", str(path)], "test_cost_of_many_workers did not run"),
    ):
        assert command.main(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert message in error


def test_evidence_page_lists_the_committed_campaigns(capsys: Any):
    assert command.main(["list"]) == 0
    table = capsys.readouterr().out
    assert "| gate | 100 |" in table
    assert table in (command.EVIDENCE / "README.md").read_text()


def test_drift_is_that_of_the_recorded_runs(capsys: Any):
    assert command.main(["drift", str(command.EVIDENCE / "drift.parquet")]) == 0
    assert f"s: {100 * run_levels.DRIFT:.0f} % over" in capsys.readouterr().out


def test_cost_of_workers_is_shown_with_its_growth():
    runs = parquet_file.load(command.EVIDENCE / "many-workers.parquet")
    shown = growth_with_workers.table(runs)
    (local, lines), (ray, _) = shown.groups()
    assert local.endswith("on the engine local")
    assert ray.endswith("on the engine ray")
    assert [line[0] for line in lines] == ["2", "8", "16", "32", "64", "growth"]
    assert growth_with_workers._exponent({2: 100.0, 8: 3.0, 16: 6.0, 64: 24.0}) == "1.00"
    assert growth_with_workers._exponent({8: 3.0}) == ""


HOMES = r"/(work|home|root|Users)/"
RECORDS = sorted(command.EVIDENCE.rglob("*.parquet"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_published_record_has_no_path_of_the_machine(path: Path):
    """Paths in /tmp are those of the runs' own files."""
    text = pd.read_parquet(path).to_csv()
    found = {text[one.start() - 40 : one.end() + 40] for one in re.finditer(HOMES, text)}
    assert not found, found
