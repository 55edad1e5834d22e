"""Sessions of pytest with the plug-in, on fake trainers and a TensorFlow that is only a name."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.harness.process import ROOT

Done = subprocess.CompletedProcess[str]

HANGS_S = 300  # a session takes seconds
TESTS = '''
"""Tests as the suite has them, one for each verdict."""
import pytest
from suite.harness.errors import CheckFailed, Unsupported

@pytest.mark.claim("single/restart-resumes", "mwms/converges")
@pytest.mark.cases(events=("step",))
def test_holds(healthy, record):
    assert healthy.of("step")
    record("steps", len(healthy.of("step")), "1", better="none")

@pytest.mark.cases(families=("single",))
def test_fails(healthy):
    raise CheckFailed("the loss is 3, not 2")

@pytest.mark.cases(families=("single",))
def test_deviates(healthy):
    raise CheckFailed("known: the loss is 3, not 2")

@pytest.mark.cases(families=("single",))
def test_deviates_otherwise(healthy):
    raise CheckFailed("something new")

@pytest.mark.cases(families=("single",))
def test_mends_itself(healthy):
    pass

@pytest.mark.cases(families=("single",))
def test_cannot(healthy):
    raise Unsupported("no GPU here")

@pytest.mark.cases(families=("single",))
def test_cannot_and_nobody_knew(healthy):
    raise Unsupported("no GPU here")

@pytest.mark.cases(families=("single",))
def test_harness_breaks(healthy):
    raise KeyError("a bug of ours")

@pytest.mark.cases(families=("single",))
def test_is_idle(case):
    pass

@pytest.mark.timing
@pytest.mark.cases(families=("single",))
def test_measures(healthy, record):
    record("throughput_steps_per_s", 5.0, "1/s", better="higher", collective="none", repeat=1)
'''

AHEAD = '''
"""Scenarios that tell whether others are played at the same time."""
from pathlib import Path
import pytest
from suite.harness import staging
from suite.harness.cases import plays
from suite.harness.errors import CheckFailed
from suite.harness.waiting import wait_until

def flag(launch, name):
    return Path(launch.engine.directory) / name

def meet(launch, other):
    flag(launch, launch.name).touch()
    wait_until("the other scenario", flag(launch, other).exists, launch.engine.deadlines.exit_s)
    return []

def one(launch):
    return meet(launch, "another")

def another(launch):
    return meet(launch, "one")

def slow(launch):
    flag(launch, "slow-begun").touch()
    run = staging.complete(launch, flags=staging.work(launch))
    flag(launch, "slow-ended").touch()
    return run

def endless(launch):
    with launch(flags=staging.endless_work(launch)) as cluster:
        cluster.start()
        cluster.wait_for("step")
        flag(launch, "endless-begun").touch()
        cluster.wait_for("step", at_least=10**9)

def test_of_the_harness_goes_before_all_that_meet(session):
    assert not session.ahead.playing

@plays(one)
@pytest.mark.cases(families=("single",))
def test_first_of_two_that_meet(played):
    pass

@plays(another)
@pytest.mark.cases(families=("single",))
def test_second_of_two_that_meet(played):
    pass

@pytest.mark.timing
@pytest.mark.cases(families=("single",))
def test_timed(launch):
    assert flag(launch, "slow-begun").exists() == flag(launch, "slow-ended").exists()

@plays(slow)
@pytest.mark.cases(families=("single",))
def test_slow(played):
    pass

@pytest.mark.cases(families=("single",))
def test_ends_it(case, session):
    wait_until("the endless scenario", flag(session, "endless-begun").exists, 30)
    raise CheckFailed("now")

@plays(endless)
@pytest.mark.cases(families=("single",))
def test_never_comes(played):
    pass
'''

ROWS = """
[[expectation]]
trainer = "single_process"
test = "{test}"
status = "{status}"
reason = "it is known"
message = "{message}"
url = "https://github.com/tensorflow/tensorflow/issues/1"
"""
EXPECTED = {
    "test_deviates": ("known_deviation", "^known: "),
    "test_deviates_otherwise": ("known_deviation", "^known: "),
    "test_mends_itself": ("known_deviation", "^known: "),
    "test_cannot": ("unsupported", "no GPU"),
}


def set_stage(directory: Path) -> None:
    """Fill it with tests, expectations, and packages that are called as the real ones are."""
    (directory / "test_verdicts.py").write_text(TESTS)
    (directory / "test_ahead.py").write_text(AHEAD)
    (directory / "expectations.toml").write_text(
        "".join(ROWS.format(test=t, status=s, message=m) for t, (s, m) in EXPECTED.items())
    )
    site = directory / "site"
    for name, version in (("tensorflow", "2.99.0"), ("tf_keras", "2.99.0"), ("keras", "2.99.0")):
        information = site / f"{name}-{version}.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    package = site / "tensorflow"
    (package / "python" / "eager").mkdir(parents=True)
    (package / "python" / "eager" / "context.py").write_text("_context = None\n")
    (package / "__init__.py").write_text(
        "from types import SimpleNamespace as N\n"
        "__version__ = '2.99.0'\n"
        "class Dense: pass\n"
        "keras = N(layers=N(Dense=Dense))\n"
    )


def run_pytest(
    stage: Path,
    arguments: Sequence[str],
    test: str = "test_verdicts.py",
    before: Sequence[str] = (),
    **how: Any,
) -> Done:
    """A session of its own over the stage's tests, nobody's worker."""
    plugins = ["-p", "suite.meta.fake_rows", "-p", "suite.harness.plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*before, sys.executable, "-m", "pytest", "--rootdir", str(stage), *plugins, test]
        + list(arguments),
        env=environment(stage),
        cwd=stage,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
        **how,
    )


def run_module(stage: Path, module: str, arguments: Sequence[str]) -> Done:
    """`python -m module`, where pytest, should it start one, finds the stage's packages."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**environment(stage), "PYTEST_ADDOPTS": "-p suite.meta.fake_rows"},
        cwd=stage,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )


def environment(stage: Path, root: Path = ROOT) -> dict[str, str]:
    """What a session inherits: the project at `root`, the stage's packages, nothing of pytest's."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        "PYTHONPATH": os.pathsep.join([str(root), str(stage / "site")]),
        "FAKE_EXPECTATIONS": str(stage / "expectations.toml"),
        "TFDC_OFFLINE": "1",
    }


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))


def on_a_small_disk(stage: Path) -> Done:
    """A real one, which only this session sees."""
    small = stage / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=1m none {small} && exec "$@"'
    return run_pytest(
        stage,
        ["-k", "single", "--run-dir", str(small / "run"), "--basetemp", str(small / "tmp")],
        before=["unshare", "-rm", "sh", "-c", mount, "sh"],
    )


ONE_CASE = ("--trainer", "single_process", "--keras", "tf_keras")
FOR_WHAT_NEVER_COMES = ("--deadline-scale", "0.05")


def ahead(tests: str, *arguments: str) -> Callable[[Path], Done]:
    """A session over some of the tests in AHEAD."""
    chosen = [*ONE_CASE, "-k", tests, *arguments]
    return lambda stage: run_pytest(stage, chosen, "test_ahead.py")


def two_sides(stage: Path) -> Done:
    """Two paired comparisons of a fake with itself, bound to all processors but one."""
    chosen = ["--base", "same", "--budget", "1", "--times", "2", *ONE_CASE, "--format", "json"]
    chosen += ["--cpus", ",".join(map(str, bound())), "--threads", "3", "--malloc", "default"]
    return run_module(stage, "reports", ["ab", *chosen, "--run-dir", str(stage / "ab")])


def bound() -> list[int]:
    """Our processors but the first, unless there is no other."""
    ours = sorted(os.sched_getaffinity(0))
    return ours[1:] or ours


# What runs on a stage, by name. Each takes seconds, most of them on one core.
SESSIONS: Mapping[str, Callable[[Path], Done]] = {
    "on two": lambda stage: run_pytest(stage, ["--run-dir", "run2", "-n", "2"]),
    "whole": lambda stage: run_pytest(stage, ["--run-dir", "run", "--seed", "11"]),
    "small files": lambda stage: run_pytest(
        stage,
        ["-k", "test_is_idle and single", "--run-dir", "unwritten"],
        preexec_fn=small_files,
    ),
    "small disk": on_a_small_disk,
    "ahead": ahead("meet or timed or slow", "--at-once", "2", "--run-dir", "ahead"),
    "one at a time": ahead(
        "first", "--at-once", "1", "--run-dir", "in-turn", *FOR_WHAT_NEVER_COMES
    ),
    "ended early": ahead("ends_it or never", "-x", "--at-once", "2", "--run-dir", "early"),
    "two sides": two_sides,
    "bad input": lambda stage: run_pytest(stage, ["--workers", "0", "--run-dir", "none"]),
}
