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
    stage: Path, test: str, arguments: Sequence[str], before: Sequence[str] = (), **how: Any
) -> subprocess.CompletedProcess[str]:
    """A session of its own over the stage's tests, nobody's worker."""
    path = os.pathsep.join([str(ROOT), str(stage / "site")])
    plugins = ["-p", "suite.meta.fake_rows", "-p", "suite.harness.plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*before, sys.executable, "-m", "pytest", "--rootdir", str(stage), *plugins, test]
        + list(arguments),
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
            "PYTHONPATH": path,
            "FAKE_EXPECTATIONS": str(stage / "expectations.toml"),
            "TFDC_OFFLINE": "1",
        },
        cwd=stage,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **how,
    )


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))


def on_a_small_disk(stage: Path) -> dict[str, Any]:
    """A real one, which only this session sees."""
    small = stage / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=1m none {small} && exec "$@"'
    return {
        "arguments": [
            "-k",
            "single",
            "--run-dir",
            str(small / "run"),
            "--basetemp",
            str(small / "tmp"),
        ],
        "before": ["unshare", "-rm", "sh", "-c", mount, "sh"],
    }


# name -> stage -> what `run_pytest` is given. Each takes seconds, most of them on one core.
SESSIONS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "on two": lambda _: {"arguments": ["--run-dir", "run2", "-n", "2"]},
    "whole": lambda _: {"arguments": ["--run-dir", "run", "--seed", "11"]},
    "small files": lambda _: {
        "arguments": ["-k", "test_is_idle and single", "--run-dir", "unwritten"],
        "preexec_fn": small_files,
    },
    "small disk": on_a_small_disk,
    "bad input": lambda _: {"arguments": ["--workers", "0", "--run-dir", "none"]},
}
