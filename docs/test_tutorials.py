"""Run the commands of the tutorials in order, and compare what they print with the pages.

`.ci/run tutorials` runs this with the environments of its steps `newest` and `tf215`, which need
TensorFlow. A command of a tutorial is run unless NOT_RUN has it. It must exit with 0, or with the
code that a comment after the command names: `pytest suite/  # exits with 1`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT)]

import generate  # noqa: E402 (found by the line above)
from generate.printing import OUTPUT_COLUMNS  # noqa: E402

from suite.harness.core.errors import BadInput  # noqa: E402
from suite.harness.environment import dataset  # noqa: E402

VENVS = Path(os.environ.get("VENVS", ROOT / ".ci" / "venvs")).resolve()
# Environment of the tutorials -> environment of .ci/run.
ENVIRONMENTS = {"venv": VENVS / "newest", "venv-old": VENVS / "tf215"}
TUTORIALS = ("first-run", "break-a-cluster", "mend-a-program", "judge-an-upgrade")
NEEDS_MNIST = ("mend-a-program",)  # its program takes the data from Keras, and no others
# Command -> why it is not run. Commands without a row are run.
NOT_RUN = {
    "python3 -m venv venv && venv/bin/pip install -e '.[tensorflow]'": (
        "the step `newest` of .ci/run makes this environment"
    ),
    "python3.11 -m venv venv && venv/bin/pip install -e '.[tensorflow]'": (
        "the step `newest` of .ci/run makes this environment"
    ),
    "python3.11 -m venv venv-old && venv-old/bin/pip install -e . 'tensorflow==2.15.*'": (
        "the step `tf215` of .ci/run makes this environment"
    ),
}
# Option of a tutorial -> the value with which it is run, to save time: from fewer pairs the answer
# becomes *cannot tell*, and the table stays the same.
INSTEAD = {r"--budget \d+": "--budget 1"}
COMMAND_TIMEOUT_S = 600
# Pattern of a command -> lines of its output that the text of the tutorial explains.
EXPLAINED = {
    r"pytest suite/(?!.*# exits with)": (r"Run \S+ passed: .*\d+ passed",),
    r"pytest suite/.*# exits with 1": (r"Run \S+ failed: \d+ failed",),
    r"pytest 'suite/": (r"Run \S+ passed: 1 passed",),
    r"reports show": (r"Conformance", r"Throughput"),
    r"reports compare": (r"0 regressions, \d+ no change",),
    r"reports ab": (r"single_process · .* →", r" +\d.* (?:enough|budget) +\S+ → \S+ +\d.* \("),
}
EXIT_CODE = re.compile(r"  # exits with (\d+)$")  # at the end of a command
# Cells of a row of `ab` that vary.
ANSWERS = r"\b(?:enough|budget|regression|improvement|no change|cannot tell)\b"
SKIPPED = {".git", ".ci", ".tox", "_build", "runs", "__pycache__", *ENVIRONMENTS}


@dataclass(frozen=True)
class Command:
    """A command of a tutorial, and the output that the page shows after it, if any."""

    line: str
    shown: str


def page(name: str) -> str:
    return (DOCS / "tutorials" / f"{name}.md").read_text("utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """Return language and content of each fenced block."""
    return re.findall(r"^```(\S*).*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@cache
def commands(name: str) -> Sequence[Command]:
    """Return the commands of a tutorial, generated ones included."""
    found: list[Command] = []
    for language, text in blocks(generate.expanded(page(name))):
        if language == "console":
            found += [Command(line.removeprefix("$ "), "") for line in text.splitlines()]
        elif language == "text" and found:
            found[-1] = Command(found[-1].line, text)
    return found


def untested(text: str) -> list[str]:
    """Return the lines of a tutorial's blocks that are neither commands nor generated."""
    return [
        line
        for language, block in blocks(text)
        for line in block.splitlines()
        if language != "console" or not line.startswith("$ ")
    ]


def words(output: str) -> Counter[str]:
    """Return the words of an output.

    All numbers, durations, data files and answers of `ab` are alike.
    """
    text = re.sub(r"--data \S+", "--data FILE", re.sub(ANSWERS, "", output))
    text = re.sub(r"\d[\d.,]*", "#", text)
    text = re.sub(r"(?:# (?:s|min|h)\b ?)+", "TIME ", text)
    return Counter(word for word in text.split() if word != "...")


def expected_code(line: str, output: str) -> int:
    """Return the exit code that the page names, or that of `ab` with this output."""
    named = EXIT_CODE.search(line)
    return int(named[1]) if named else int(is_regression(output))


def is_regression(output: str) -> bool:
    """Return whether a row of `ab`, which says how it ended, has this answer."""
    return bool(re.search(r"^ +\d.* (?:enough|budget) .* regression\b", output, re.MULTILINE))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a working copy with the environments that the tutorials make."""
    copy = tmp_path_factory.mktemp("tutorials") / "checkout"
    shutil.copytree(ROOT, copy, ignore=lambda _, names: SKIPPED & set(names))
    for name, environment in ENVIRONMENTS.items():
        (copy / name).symlink_to(environment)
    return copy


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return the environment variables of the commands. Put MNIST into Keras' cache.

    MNIST is the file that the variable MNIST names, or that the suite finds or downloads.
    """
    given = {**os.environ, "COLUMNS": str(OUTPUT_COLUMNS)}
    named = Path(os.environ.get("MNIST", ""))
    try:
        found = dataset.resolve(str(named.resolve()) if named.is_file() else None)
    except BadInput:
        return given
    if found.real_mnist:
        home = tmp_path_factory.mktemp("keras")
        (home / "datasets").mkdir()
        (home / "datasets" / "mnist.npz").symlink_to(Path(found.path).resolve())
        given["KERAS_HOME"] = str(home)
    return given


def run(line: str, checkout: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a command line; return its exit code and output. End all of it after the time limit."""
    for pattern, text in INSTEAD.items():
        line = re.sub(pattern, text, line)
    begin_s = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", line],
        cwd=checkout,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate()
        pytest.fail(f"{line}: no end after {COMMAND_TIMEOUT_S} s\n{output}")
    print(f"{time.monotonic() - begin_s:6.0f} s  exit {process.returncode}  {line}")
    return process.returncode, output


def lines_missing(patterns: Sequence[str], output: str) -> Iterator[str]:
    return (p for p in patterns if not re.search(rf"^{p}", output, re.MULTILINE))


@pytest.mark.parametrize("name", TUTORIALS)
def test_commands_work_and_print_what_the_page_shows(
    name: str, checkout: Path, environ: Mapping[str, str]
):
    todo = [command for command in commands(name) if command.line not in NOT_RUN]
    assert todo
    if name in NEEDS_MNIST and not dataset.keras_cache(environ).is_file():
        pytest.skip("MNIST is neither here nor can be downloaded")
    for venv in sorted({venv for c in todo for venv in re.findall(r"^(venv[\w-]*)/", c.line)}):
        if venv == "venv-old" and not ENVIRONMENTS[venv].is_dir():
            pytest.skip("TensorFlow 2.15 needs Python 3.10 or 3.11")
        assert (checkout / venv / "bin" / "python").exists(), f"{venv} is not installed"
    for command in todo:
        code, output = run(command.line, checkout, environ)
        assert code == expected_code(command.line, output), output
        missing = words(command.shown) - words(output)
        assert not missing, f"{command.line} did not print {sorted(missing)}, but\n{output}"
        for pattern, patterns in EXPLAINED.items():
            if re.search(pattern, command.line):
                assert list(lines_missing(patterns, output)) == [], output
    if "latest/report.html" in page(name):
        assert "<svg" in (checkout / "reports/runs/latest/report.html").read_text("utf-8")
