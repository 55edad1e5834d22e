"""Tests of whole sessions of the plug-in, on fake trainers and a stub TensorFlow package."""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from reports.rundir import frame
from suite.harness import plugin
from suite.harness.cluster import leaks
from suite.harness.cluster.addresses import LEASED_PORTS, REMEDY, Network
from suite.harness.core.errors import BadInput
from suite.harness.core.history import read
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import OPTIONS
from suite.harness.environment.interpreter import Interpreter
from suite.harness.pytest_plugin import options, verdict_hooks
from suite.harness.session import run_directory, setup
from suite.meta.sessions import ONE_CASE, run_pytest

pytestmark = pytest.mark.xdist_group("sessions")  # they share the first one's results

VERDICTS = {
    "test_holds": {"passed"},
    "test_is_idle": {"passed"},
    "test_measures": {"passed"},
    "test_fails": {"failed"},
    "test_deviates": {"known_deviation"},
    "test_deviates_otherwise": {"failed"},
    "test_mends_itself": {"unexpected_pass"},
    "test_cannot": {"unsupported"},
    "test_unsupported_without_a_row": {"failed"},
    "test_harness_breaks": {"harness_error"},
}


def by_name(verdicts: pd.DataFrame) -> dict[str, set[str]]:
    names = verdicts["test"].str.extract(r"::(\w+)")[0]
    return verdicts.groupby(names)["verdict"].agg(set).to_dict()


@pytest.fixture(scope="module")
def ended(plugin_stage, sessions) -> SimpleNamespace:
    """Return the results of one session that has every verdict."""
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
    # pytest's own terms
    assert "1 xfailed" in ended.done.stdout
    assert "1 skipped" in ended.done.stdout
    assert "1 error" in ended.done.stdout


def test_the_short_summary_has_the_reason():
    report: Any = SimpleNamespace(failed=True, longrepr="self = Zygote()\n\n    def connect(self):")
    setattr(report, verdict_hooks.CARRIED, {"row": {"reason": "no answer\nand more"}})
    verdict_hooks.summarize_in_one_line(report)
    assert report.longrepr.reprcrash.message == "no answer"
    assert str(report.longrepr).endswith("def connect(self):")


def test_a_failure_brings_its_evidence(ended):
    row = ended.verdicts[ended.verdicts["test"].str.contains("::test_fails")].iloc[0]
    assert row["reason"] == "the loss is 3, not 2"
    assert "--seed 11" in row["reproduce"]
    assert "test_fails" in row["reproduce"]
    junit = ElementTree.parse(ended.directory / "junit.xml").getroot()
    failures = [f.text or "" for f in junit.iter("failure")]
    (failure,) = [f for f in failures if "the loss is 3, not 2" in f and "known:" not in f]
    assert failure.startswith("CheckFailed: the loss is 3, not 2\ntest_verdicts.py:")
    assert ': raise CheckFailed("the loss is 3, not 2")' in failure
    assert "harness/" not in failure.split("last 50 lines")[0].split("to run one task alone")[0]
    assert f"to reproduce: {row['reproduce']}" in failure
    for text in (ended.done.stdout, failure):
        assert "to run one task alone:" in text
        assert "last 50 lines of worker/0" in text
    properties = {p.get("value") for p in junit.iter("property") if p.get("name") == "verdict"}
    assert properties == {v for names in VERDICTS.values() for v in names}


def test_one_cause_is_shown_once(plugin_stage, sessions):
    """Two pytest processes run four tests each on a scenario that fails."""
    done = sessions["failing"].result()
    run = plugin_stage / "failing"
    verdicts = pd.read_parquet(run / "verdicts.parquet")
    broken = verdicts["test"].str.contains("::test_broken")
    assert list(verdicts.loc[broken, "verdict"]) == ["failed"] * 8
    assert len(done.stdout.splitlines()) < 170, done.stdout
    assert done.stdout.count("to run one task alone:") == 2
    assert done.stdout.count("\nsame cause as test_failing.py::test_broken[") == 6
    for command in verdicts.loc[verdicts["verdict"] == "failed", "reproduce"]:
        assert f"to reproduce: {command}\n" in done.stdout
        assert f"  {command}\n" in done.stdout
    assert done.stdout.count("failed, 8 tests of 2 approaches") == 1
    assert str(ROOT / "suite") not in done.stdout
    diagnoses = [path.read_text() for path in (run / "diagnosis").iterdir()]
    assert sum(text.startswith("same cause as ") for text in diagnoses) == 6


def test_two_scenarios_of_one_name_stay_apart(plugin_stage, sessions):
    sessions["failing"].result()
    verdicts = pd.read_parquet(plugin_stage / "failing" / "verdicts.parquet")
    verdicts = verdicts[verdicts["scenario"] == "broken"]
    named = json.loads((plugin_stage / "failing" / "histories.json").read_text())
    (other,) = verdicts.loc[verdicts["verdict"] == "passed", "test"]
    assert "test_of_another_scenario_called_broken" in other
    assert other not in named  # it has no cluster
    assert len(named) == 8


OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def test_reports_stay_small_and_inert_whatever_is_printed(plugin_stage, sessions):
    """The output is 100 MB with a 50 MB line, NUL, invalid UTF-8, escape sequences and HTML."""
    done = sessions["loud"].result()
    run = plugin_stage / "loud"
    files = {path for path in run.rglob("*") if path.is_file()}
    logs = {path for path in files if (run / "logs") in path.parents}
    sizes = {str(path.relative_to(run)): path.stat().st_size for path in files - logs}
    print(sizes, len(done.stdout.encode()), [path.stat().st_size for path in logs])
    assert max(sizes.values()) < 100_000
    assert len(done.stdout.encode()) < 20_000
    assert sum(path.stat().st_size for path in logs) < 10_000_000
    written = {path for path in files - logs if path.suffix not in (".parquet", ".jsonl")}
    texts = {path.name: path.read_text(encoding="utf-8") for path in written}
    for name, text in {**texts, "terminal": done.stdout}.items():
        assert not OBEYED.search(text), name
    for text in (done.stdout, texts["junit.xml"], texts["report.html"]):
        assert r"screen \x1b[?1049h title \x1b]0;title\x07 nul \x00 c1 \x9b2J invalid " in text
        assert "invalid \ufffd\n" in text
        assert r"bidi \u202e" in text
        assert re.search(r"\.\.\. \d\.\d MB cut \.\.\. y", text)
    for name in ("junit.xml", "report.html", "report.md"):
        assert "<script>alert" not in texts[name], name
        assert "&lt;script&gt;alert" in texts[name], name
    ElementTree.parse(run / "junit.xml")


def test_a_scenario_s_time_is_its_first_test_s(ended):
    """Most scenarios run ahead of their tests, in other threads."""
    judged = ended.verdicts[ended.verdicts["scenario"] != ""]
    assert set(judged["scenario"]) == {"healthy"}
    assert set(ended.verdicts["test"]) - set(judged["test"]) == {
        test for test in ended.verdicts["test"] if "test_is_idle" in test
    }
    for trainer, tests in judged.groupby("trainer"):
        (took_s,) = set(tests["scenario_s"])
        (start,) = set(tests["scenario_start"])
        assert pd.Timestamp(ended.info["start"]) <= start <= pd.Timestamp(ended.info["end"])
        assert tests["duration_s"].iloc[0] > took_s > 0
        assert tests["duration_s"].iloc[0] == tests["duration_s"].max()
        assert trainer != "single_process" or tests["duration_s"].min() < took_s
    cases = ElementTree.parse(ended.directory / "junit.xml").getroot().iter("testcase")
    times = {case.get("name"): float(case.get("time", "nan")) for case in cases}
    for test, duration_s in zip(judged["test"], judged["duration_s"], strict=True):
        assert times[test.split("::")[1]] >= round(duration_s, 3) - 0.001


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
    assert info["zygote_restarts"] == 0
    assert info["data"]["name"] == "digits"
    assert info["network"]["kind"] in ("namespace", "leased-ports")
    assert info["versions"]["tensorflow"] == "2.99.0"
    assert set(ended.verdicts["suite"]) == {info["versions"]["suite"]}
    assert info["git"]["commit"][:12] in info["versions"]["suite"]


def test_timed_test_waits_for_another_run_that_times(ended):
    said = (
        r"waiting for another run on this machine \(process \d+\) to finish timing \(up to 600 s\)"
    )
    assert len(re.findall(said, ended.done.stdout)) == 1, ended.done.stdout
    locks = ended.measurements[ended.measurements["metric"] == "machine_lock_acquired"]
    assert list(locks["value"]) == [1.0]
    assert "test_measures" in locks["test"].iloc[0]


@pytest.mark.parametrize("name", ["whole", "on two"])
def test_each_test_names_the_clusters_that_it_judged(plugin_stage, sessions, name: str):
    """This includes tests that failed and tests of another pytest process."""
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


def test_process_left_behind_is_reported_and_fails_the_run(plugin_stage, sessions):
    done = sessions["leak"].result()
    assert " 1 passed" in done.stdout, done.stdout
    assert done.returncode == 1
    (leak,) = json.loads((plugin_stage / "leak" / "run.json").read_text())["leaks"]
    assert re.fullmatch(r"process \d+ in net:\[\d+\]: cat", leak)
    assert f"left behind: {leak}" in done.stdout


def test_two_processes_find_the_same_and_take_no_timings(plugin_stage, sessions, ended):
    done = sessions["on two"].result()
    verdicts = pd.read_parquet(plugin_stage / "run2" / "verdicts.parquet")
    measured = pd.read_parquet(plugin_stage / "run2" / "measurements.parquet")
    assert by_name(verdicts) == {k: v for k, v in VERDICTS.items() if k != "test_measures"}
    assert set(measured["metric"]) == {"steps"}
    assert "no timings were taken" in done.stdout
    assert ended.info["xdist_workers"] == 0
    # Tests that share a run share a process, so that the run happens once.
    one, two = (len(list((plugin_stage / run / "events").iterdir())) for run in ("run", "run2"))
    assert one == two


def test_scenarios_run_ahead_but_never_during_timed_tests_or_those_alone(sessions):
    done = sessions["ahead"].result()
    assert " 7 passed, 3 deselected" in done.stdout, done.stdout


def test_dead_zygote_is_counted_and_reported(plugin_stage, sessions):
    done = sessions["ahead"].result()
    info = json.loads((plugin_stage / "ahead" / "run.json").read_text())
    assert info["zygote_restarts"] == 1
    assert "a zygote was started anew: tf_keras: the zygote was killed by sig" in done.stdout


def test_each_process_runs_its_own_groups_ahead(plugin_stage, sessions):
    sessions["failing"].result()
    verdicts = pd.read_parquet(plugin_stage / "failing" / "verdicts.parquet")
    met = verdicts[verdicts["test"].str.contains("of_two_that_meet")]
    assert list(met["verdict"]) == ["passed"] * 2


def test_one_at_a_time_is_one_at_a_time(sessions):
    done = sessions["one at a time"].result()
    assert "for the other scenario" in done.stdout, done.stdout
    assert "1 error" in done.stdout


def test_scenarios_run_ahead_end_with_the_session(plugin_stage, sessions):
    done = sessions["ended early"].result()
    assert "1 failed" in done.stdout, done.stdout
    info = json.loads((plugin_stage / "early" / "run.json").read_text())
    assert info["leaks"] == []
    assert info["counts"] == {**dict.fromkeys(info["counts"], 0), "failed": 1}


@pytest.mark.parametrize("name", ["run.json", "events/x", "notes.txt", ".gitkeep"])
def test_run_directory_with_content_is_refused_unchanged(tmp_path, name: str):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadInput, match="is not empty; give a new or an empty directory"):
        run_directory.run_directory(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_finished_run_is_not_written_over(plugin_stage, ended):
    before = (ended.directory / "run.json").read_text()
    done = run_pytest(plugin_stage, ["--run-dir", "run"])
    assert done.returncode == 4
    assert [line for line in done.stderr.splitlines() if line] == [
        f"ERROR: --run-dir {ended.directory}: is not empty; give a new or an empty directory"
    ]
    assert (ended.directory / "run.json").read_text() == before


def test_marked_tests_without_their_option_are_named(plugin_stage):
    done = run_pytest(plugin_stage, ["--collect-only", "-m", "long", *ONE_CASE], "test_ahead.py")
    assert done.returncode == 5, done.stdout
    assert "left out: 1 test marked long; add --long" in done.stdout
    assert "deselected" in done.stdout


def test_a_report_that_cannot_be_written_does_not_look_whole(plugin_stage, sessions):
    done = sessions["small files"].result()
    assert done.returncode == 4, done.stdout
    assert "could not be written" in done.stdout
    assert not (plugin_stage / "unwritten" / "run.json").exists()
    assert not (plugin_stage / "unwritten" / "report.html").exists()


def test_broken_section_fails_the_run_and_leaves_its_data(plugin_stage, sessions):
    done = sessions["broken section"].result()
    assert done.returncode == 1, done.stdout
    note = "section Conformance could not be rendered: KeyError: 'a bug'"
    assert note in done.stdout.splitlines()
    assert "1 passed" in done.stdout
    directory = plugin_stage / "broken"
    assert frame.load(directory).counts["passed"] == 1
    for page in ("report.md", "report.html"):
        text = html.unescape((directory / page).read_text()).replace("\\", "")
        assert note in text
        assert "Every verdict" in text


def test_a_disk_that_fills_up_ends_the_run(sessions):
    done = sessions["small disk"].result()
    assert done.returncode == 4, done.stdout
    assert "the disk is full: no report" in done.stdout
    assert done.stdout.count("HARNESS ERROR") == 1  # the session ends after that


def options_with(**given) -> argparse.Namespace:
    """Return what argparse makes of a command line with these options."""
    parser = argparse.ArgumentParser()
    for row in OPTIONS.values():
        parser.add_argument(row.flag, **row.arguments)
    return argparse.Namespace(**{**vars(parser.parse_args([])), **given})


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
    ({"seed": "-1"}, r"--seed -1: must be a whole number from 0 to 2147483647$"),
    ({"new": "ring"}, r"--new ring: compared with what"),
    ({"base_env": ["X"]}, r"--base-env X: must be NAME=VALUE$"),
    ({"new_env": ["X=1", "=1"]}, r"--new-env =1: must be NAME=VALUE$"),
    (
        {"budget": "0"},
        r"--budget 0: must be a duration from 0.1s to 3600s, such as 90, 90s or 10m$",
    ),
    ({"budget": "2h"}, r"--budget 2h: must be a duration from 0.1s to 3600s"),
    ({"budget": "10 minutes"}, r"--budget 10 minutes: must be a duration"),
    ({"slow_down": "-5"}, r"--slow-down -5: must be a number from 0 to 100"),
    ({"cpus": "0,9999"}, r"--cpus 0,9999: must be processors with commas between, of 0"),
    ({"cpus": "all"}, r"--cpus all: must be processors"),
    ({"artifacts": __file__}, r"--artifacts /.*test_sessions.py: must be a directory$"),
    ({"threads": "0"}, r"--threads 0: must be a whole number from 1"),
    ({"malloc": "jemalloc"}, r"--malloc jemalloc: unknown; choose from default, keep"),
    ({"data": "missing.npz"}, r"--data missing.npz: no such file"),
    ({"data": "/"}, r"--data /: a directory, not a file; give an .npz"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[str(row[0]) for row in WRONG])
def test_a_wrong_value_gives_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        options.read(options_with(**given))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), (".5", 0.5), ("1h", 3600)]
)
def test_a_budget_is_a_duration(given, seconds):
    assert options.read(options_with(budget=given)).budget_s == seconds


@pytest.mark.parametrize(
    ("named", "full"),
    [
        (["suite/"], False),
        (["suite/benchmarks", "suite/faults"], False),
        (["suite/benchmarks"], True),
        (["suite/benchmarks/test_scaling.py::test_saving_by_size"], True),
    ],
)
def test_a_benchmark_run_is_one_that_names_nothing_else(named, full):
    config = SimpleNamespace(args=named, invocation_params=SimpleNamespace(dir=ROOT))
    assert plugin.only_benchmarks(config) is full  # type: ignore[arg-type]


def test_listing_tests_makes_and_probes_nothing(monkeypatch, tmp_path):
    def never(*_):
        raise AssertionError("what only a run needs")

    monkeypatch.setattr(setup.dataset, "resolve", never)
    monkeypatch.setattr(setup.addresses, "probe", never)
    monkeypatch.setattr(setup, "describe", lambda path, _: Interpreter(path, "3", "2.21"))
    settings = options.read(options_with(run_dir=str(tmp_path / "run")))
    setup.settle(settings, runs=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("args", "lists"),
    [(["--collect-only"], True), (["--fixtures"], True), (["--setup-plan"], True), ([], False)],
)
def test_listing_is_distinguished_from_running(pytestconfig, args, lists):
    given = SimpleNamespace(option=pytestconfig._parser.parse(args))
    assert plugin.only_lists(given) is lists  # type: ignore[arg-type]


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
    caches = request.config.pluginmanager.hasplugin("cacheprovider")
    for name in given:
        if caches or name not in ("lf", "stepwise"):  # these come with that plugin
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


def test_open_ports_warned_of_in_header_summary_and_record(plugin_stage, sessions):
    done = sessions["open ports"].result()
    assert done.returncode == 0, done.stdout
    warnings = [x for x in done.stdout.splitlines() if x.startswith("WARNING: open ports: ")]
    assert len(warnings) == 2, done.stdout
    header, summary = (done.stdout.index(f"\n{text}") for text in ("collected", "Report:"))
    assert done.stdout.index(warnings[0]) < header < done.stdout.rindex(warnings[0]) < summary
    info = json.loads((plugin_stage / "open" / "run.json").read_text())
    assert info["network"] == {
        "kind": LEASED_PORTS,
        "reason": "this kernel or container allows no private network: unshare: not here",
        "open_ports": True,
        "firewall": "",
        "remedy": REMEDY,
        "connections_checked": True,
    }
    assert REMEDY in warnings[0]
    assert "ports reachable from other hosts" in (plugin_stage / "open" / "report.md").read_text()


def test_closed_ports_refused_where_nothing_closes_them(monkeypatch, tmp_path):
    monkeypatch.setattr(setup, "describe", lambda path, _: Interpreter(path, "3", "2.21"))
    monkeypatch.setattr(setup.addresses, "probe", lambda _: Network(LEASED_PORTS, "unshare: no"))
    monkeypatch.setattr(setup.addresses.firewall, "probe", lambda _: ("", "nftables: no"))
    settings = options.read(options_with(closed_ports=True, run_dir=str(tmp_path / "run")))
    with pytest.raises(BadInput) as caught:
        setup.settle(settings)
    because = f"nothing closes ports here (nftables: no) and unshare: no; {REMEDY}"
    assert str(caught.value) == f"--closed-ports: {because}"
    assert not (tmp_path / "run").exists()


def test_an_interpreter_without_tensorflow_is_bad_input(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    settings = options.read(options_with(python=str(bare)))
    with pytest.raises(BadInput, match="has no TensorFlow"):
        setup.settle(settings)


def test_a_run_directory_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written: Not a directory"):
        run_directory.run_directory(str(tmp_path / "file" / "run"))
