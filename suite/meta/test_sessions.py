"""Whole sessions of the plug-in, on fake trainers and a TensorFlow that is only a name."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pandas as pd
import pytest

from suite.harness import leaks, options, plugin, wiring
from suite.harness.errors import BadInput
from suite.harness.process import ROOT
from suite.harness.run import read
from suite.meta.sessions import run_pytest

pytestmark = pytest.mark.xdist_group("sessions")  # they share what the first one gave

VERDICTS = {
    "test_holds": {"passed"},
    "test_is_idle": {"passed"},
    "test_measures": {"passed"},
    "test_fails": {"failed"},
    "test_deviates": {"known_deviation"},
    "test_deviates_otherwise": {"failed"},
    "test_mends_itself": {"unexpected_pass"},
    "test_cannot": {"unsupported"},
    "test_cannot_and_nobody_knew": {"failed"},
    "test_harness_breaks": {"harness_error"},
}


def by_name(verdicts: pd.DataFrame) -> dict[str, set[str]]:
    names = verdicts["test"].str.extract(r"::(\w+)")[0]
    return verdicts.groupby(names)["verdict"].agg(set).to_dict()


@pytest.fixture(scope="module")
def ended(plugin_stage, sessions) -> SimpleNamespace:
    """One session with every verdict in it."""
    done = sessions["whole"].result()
    run = plugin_stage / "run"
    return SimpleNamespace(
        done=done,
        directory=run,
        info=json.loads((run / "run.json").read_text()),
        verdicts=pd.read_parquet(run / "verdicts.parquet"),
        measurements=pd.read_parquet(run / "measurements.parquet"),
    )


def test_the_six_verdicts_stay_apart(ended):
    assert by_name(ended.verdicts) == VERDICTS
    assert ended.done.returncode == 1
    assert ended.info["counts"]["failed"] == 3
    assert ended.info["counts"]["harness_error"] == 1
    # pytest's own words for them
    assert "1 xfailed" in ended.done.stdout
    assert "1 skipped" in ended.done.stdout
    assert "1 error" in ended.done.stdout


def test_a_failure_brings_its_evidence(ended):
    row = ended.verdicts[ended.verdicts["test"].str.contains("::test_fails")].iloc[0]
    assert row["reason"] == "the loss is 3, not 2"
    assert "--seed 11" in row["reproduce"]
    assert "test_fails" in row["reproduce"]
    junit = ElementTree.parse(ended.directory / "junit.xml").getroot()
    failures = [f.text or "" for f in junit.iter("failure")]
    for text in (ended.done.stdout, *[f for f in failures if "loss is 3, not 2" in f][:1]):
        assert "to run one task alone:" in text
        assert "last 50 lines of worker/0" in text
    properties = {p.get("value") for p in junit.iter("property") if p.get("name") == "verdict"}
    assert properties == {v for names in VERDICTS.values() for v in names}


def test_rows_carry_their_columns(ended):
    held = ended.verdicts[ended.verdicts["test"].str.contains("::test_holds")]
    assert set(held["trainer"]) == {
        "single_process",
        "keras_multi_worker_mirrored",
        "supervisor_parameter_server",
    }
    claims = dict(zip(held["trainer"], held["claims"], strict=True))
    assert list(claims["single_process"]) == ["single/restart-resumes"]
    assert list(claims["keras_multi_worker_mirrored"]) == ["mwms/converges"]
    assert list(claims["supervisor_parameter_server"]) == []
    assert set(held["tensorflow"]) == {"2.99.0"}
    measured = ended.measurements[ended.measurements["metric"] == "throughput_steps_per_s"].iloc[0]
    assert (measured["value"], measured["unit"], measured["repeat"]) == (5.0, "1/s", 1)


def test_run_json_says_on_what(ended):
    info = ended.info
    assert info["seed"] == 11
    assert info["leaks"] == []
    assert info["data"]["name"] == "digits"
    assert info["network"]["kind"] in ("namespace", "leased-ports")
    assert info["versions"]["tensorflow"] == "2.99.0"


@pytest.mark.parametrize("name", ["whole", "on two"])
def test_each_test_names_the_clusters_that_it_judged(plugin_stage, sessions, name: str):
    """Also when it failed, and when another process of pytest ran it."""
    sessions[name].result()
    run = plugin_stage / {"whole": "run", "on two": "run2"}[name]
    named = json.loads((run / "histories.json").read_text())
    tests = set(pd.read_parquet(run / "verdicts.parquet")["test"])
    assert set(named) == {test for test in tests if "test_is_idle" not in test}
    tasks = {
        "single_process": 1,
        "keras_multi_worker_mirrored": 2,
        "supervisor_parameter_server": 4,
    }
    for test, clusters in named.items():
        (events,) = [read(run / "events" / cluster) for cluster in clusters]
        (expected,) = [count for trainer, count in tasks.items() if trainer in test]
        assert len({e.task for e in events if e.name == "spawned"}) == expected


def test_nothing_is_left_behind(ended):
    assert "left behind" not in ended.done.stdout
    assert not leaks.processes(ended.info["session"])


def test_two_processes_find_the_same_and_take_no_timings(plugin_stage, sessions, ended):
    done = sessions["on two"].result()
    verdicts = pd.read_parquet(plugin_stage / "run2" / "verdicts.parquet")
    measured = pd.read_parquet(plugin_stage / "run2" / "measurements.parquet")
    assert by_name(verdicts) == {k: v for k, v in VERDICTS.items() if k != "test_measures"}
    assert set(measured["metric"]) == {"steps"}
    assert "no timings were taken" in done.stdout
    assert ended.info["xdist_workers"] == 0


def test_scenarios_are_played_ahead_but_not_beside_what_is_timed(sessions):
    done = sessions["ahead"].result()
    assert " 5 passed, 2 deselected" in done.stdout, done.stdout


def test_one_at_a_time_is_one_at_a_time(sessions):
    done = sessions["one at a time"].result()
    assert "for the other scenario" in done.stdout, done.stdout
    assert "1 error" in done.stdout


def test_what_is_played_ahead_ends_with_the_session(plugin_stage, sessions):
    done = sessions["ended early"].result()
    assert "1 failed" in done.stdout, done.stdout
    info = json.loads((plugin_stage / "early" / "run.json").read_text())
    assert info["leaks"] == []
    assert info["counts"] == {**dict.fromkeys(info["counts"], 0), "failed": 1}


def test_a_finished_run_is_not_written_over(plugin_stage, ended):
    before = (ended.directory / "run.json").read_text()
    done = run_pytest(plugin_stage, ["--run-dir", "run"])
    assert done.returncode == 4
    assert "holds a finished run" in done.stderr
    assert (ended.directory / "run.json").read_text() == before


def test_an_interrupted_run_is_not_added_to(plugin_stage):
    (plugin_stage / "part" / "events").mkdir(parents=True)
    done = run_pytest(plugin_stage, ["--run-dir", "part"])
    assert done.returncode == 4
    assert "holds an interrupted run; give an empty directory" in done.stderr


def test_a_report_that_cannot_be_written_does_not_look_whole(plugin_stage, sessions):
    done = sessions["small files"].result()
    assert done.returncode == 4, done.stdout
    assert "could not be written" in done.stdout
    assert not (plugin_stage / "unwritten" / "run.json").exists()
    assert not (plugin_stage / "unwritten" / "report.html").exists()


def test_a_disk_that_fills_up_ends_the_run(sessions):
    done = sessions["small disk"].result()
    assert done.returncode == 4, done.stdout
    assert "the disk is full: no report" in done.stdout
    assert done.stdout.count("HARNESS ERROR") == 1  # the first test that met it was the last


def options_with(**given) -> SimpleNamespace:
    defaults = {
        "trainer": [], "backend": [], "keras": [], "workers": None, "data": None, "run_dir": None,
        "python": None, "spawn": "fork", "deadline_scale": "1", "seed": None, "at_once": None,
        "base": None, "new": None, "budget": "60", "slow_down": "0", "times": "1",
        "cpus": None, "threads": None, "malloc": None,
    }  # fmt: skip
    return SimpleNamespace(**{**defaults, **given})


WRONG = [
    ({"trainer": ["keras_mirrord"]}, r"--trainer keras_mirrord: unknown; choose from single_pro"),
    ({"backend": ["mpi"]}, r"--backend mpi: unknown; choose from auto, ring, nccl"),
    ({"keras": ["keras4"]}, r"--keras keras4: unknown; choose from"),
    ({"workers": "0"}, r"--workers 0: must be a whole number from 1 to"),
    ({"workers": "two"}, r"--workers two: must be a whole number"),
    ({"spawn": "thread"}, r"--spawn thread: unknown; choose from fork, exec"),
    ({"deadline_scale": "-1"}, r"--deadline-scale -1: must be a number from"),
    ({"at_once": "0"}, r"--at-once 0: must be a whole number from 1"),
    ({"seed": "x"}, r"--seed x: must be a whole number"),
    ({"new": "ring"}, r"--new ring: compared with what"),
    ({"budget": "0"}, r"--budget 0: must be a number from 1 to 3600"),
    ({"slow_down": "-5"}, r"--slow-down -5: must be a number from 0 to 100"),
    ({"cpus": "0,9999"}, r"--cpus 0,9999: must be processors with commas between, of 0"),
    ({"cpus": "all"}, r"--cpus all: must be processors"),
    ({"threads": "0"}, r"--threads 0: must be a whole number from 1"),
    ({"malloc": "jemalloc"}, r"--malloc jemalloc: unknown; choose from default, keep"),
    ({"data": "missing.npz"}, r"--data missing.npz: no such file"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[str(row[0]) for row in WRONG])
def test_a_wrong_value_gives_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        options.read(options_with(**given))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("named", "markers", "full"),
    [
        (["suite/"], "", False),
        (["suite/benchmarks", "suite/faults"], "", False),
        (["suite/benchmarks"], "", True),
        (["suite/benchmarks/test_scaling.py::test_saving_by_size"], "", True),
        (["suite/"], "full", True),
    ],
)
def test_a_benchmark_run_is_one_that_names_nothing_else(named, markers, full):
    config = SimpleNamespace(
        args=named,
        option=SimpleNamespace(markexpr=markers),
        invocation_params=SimpleNamespace(dir=ROOT),
    )
    assert plugin.asks_for_benchmarks(config) is full  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "given", "whole"),
    [
        (["suite/"], {}, True),
        (["suite"], {"keyword": ""}, True),
        (["suite/conformance"], {}, False),
        *((["suite/"], {name: "given"}, False) for name in plugin.NARROWING),
    ],
)
def test_rows_are_looked_for_only_among_all_tests(request, named, given, whole):
    for name in given:
        request.config.getoption(name)  # or ValueError: pytest has no such option
    config = SimpleNamespace(args=named, getoption=given.get)
    assert plugin.is_whole(config) is whole  # type: ignore[arg-type]


def test_bad_input_ends_pytest_with_4_before_anything_starts(plugin_stage, sessions):
    done = sessions["bad input"].result()
    assert done.returncode == 4
    assert done.stderr.strip().splitlines() == [
        "ERROR: --workers 0: must be a whole number from 1 to 64"
    ]
    assert not (plugin_stage / "none").exists()


def test_an_interpreter_without_tensorflow_is_bad_input(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    settings = options.read(options_with(python=str(bare)))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="has no TensorFlow"):
        wiring.settle(settings)


def test_a_run_directory_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written: Not a directory"):
        wiring.run_directory(str(tmp_path / "file" / "run"))
