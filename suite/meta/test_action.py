"""Tests of the GitHub Action: its own steps are run with the files that a runner provides.

Only what is not of this project is left out: `uses` steps and expressions of GitHub, which get
values here. The measurement is a made-up one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reports.ab.command import ROOT
from reports.rundir import frame
from reports.upgrade import measure
from suite.harness.core.deadlines import wait_until
from suite.meta import made_up_run
from suite.meta.test_documentation import is_tox_environment
from suite.meta.test_reports_paired import TEST, turns

yaml = pytest.importorskip("ruamel.yaml")
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")
# Takes the place of the interpreter: installs nothing, and copies a measurement that was made up.
PYTHON = """#!/bin/bash
echo "$@" >> "$CALLS"
case "$*" in
*"pip install"*) ;;
*--base*)
    [ "$EXIT_CODE" != 2 ] || exit 2
    if [ "$EXIT_CODE" = 143 ]; then
        sleep infinity &
        trap 'kill $!; cp -r "$MADE_UP" "${@: -1}"; exit 143' TERM
        : > "$MEASURING"
        wait
    fi
    cp -r "$MADE_UP" "${@: -1}"
    exit "$EXIT_CODE" ;;
*) exec "$REAL_PYTHON" "$@" ;;
esac
"""
# Takes the place of GitHub's command: answers from a folder, and notes what was written.
GH = """#!/bin/bash
echo "$@" >> "$CALLS"
case "$*" in
*/pulls/*) echo "$HEAD_OF_PULL_REQUEST" ;;
*"--paginate"*) [ -z "$COMMENT" ] || printf '%s\\n' $COMMENT ;;
*--method*)
    for word in "$@"; do [[ $word != body=@* ]] || cp "${word#body=@}" "$BODY"; done ;;
esac
"""


def load(path: Path) -> Any:
    return yaml.YAML(typ="safe").load(path.read_text())


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the values of its expressions, "" for one that is not known."""
    return EXPRESSION.sub(lambda match: values.get(match[1], ""), text)


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def made_up_upgrade(directory: Path) -> Path:
    """Write an upgrade whose new side fails a test and is slower."""
    for side, verdict in (("base", "passed"), ("new", "failed")):
        row = made_up_run.verdict(
            made_up_run.SINGLE,
            "export",
            "loads",
            verdict,
            run_id=side,
            reason="100 % wrong\nreally",
        )
        info = {**made_up_run.INFO, "run_id": side, "exit_code": 0}
        made_up_run.write_numbers(directory / side, info, [], [row])
    rows = [{**row, "run_id": "step-times-001"} for row in turns(1.1)]
    judged = made_up_run.verdict(
        made_up_run.SINGLE, "paired", "paired", run_id="step-times-001", test=TEST
    )
    info = {**made_up_run.INFO, "run_id": "step-times-001", "exit_code": 0}
    made_up_run.write_numbers(directory / "step-times-001", info, rows, [judged])
    record = measure.Record({"base": "a", "new": "b"}, 600.0, "1")
    record.tests, record.looks = [TEST, "other"], {TEST: ["step-times-001"]}
    record.spent_s, record.verdicts = {TEST: 50.0}, {"base": 1.0, "new": 1.0}
    record.write(directory)
    (directory / "upgrade.md").write_text("## the report\n")
    return directory


class Runner:
    """The files and variables of a runner, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program(folder / "bin" / "python", PYTHON)
        program(folder / "bin" / "gh", GH)
        program(folder / "bin" / "sudo", "#!/bin/sh\nexit 1\n")
        (folder / "workspace").mkdir()
        (folder / "workspace" / "train.py").touch()
        self.outputs = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in self.outputs.values():
            path.touch()
        self.steps: list[subprocess.Popen[str]] = []
        self.environment = {
            **os.environ,
            **{name: str(path) for name, path in self.outputs.items()},
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(folder),
            "GITHUB_WORKSPACE": str(folder / "workspace"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_RUN_ID": "7",
            "CALLS": str(folder / "calls"),
            "REAL_PYTHON": sys.executable,
            "EXIT_CODE": "1",
            "MEASURING": str(folder / "measuring"),
        }

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def output(self) -> dict[str, str]:
        """Return what steps wrote to GITHUB_OUTPUT."""
        lines = self.outputs["GITHUB_OUTPUT"].read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def start(self, command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a step as GitHub does: as a file that bash reads."""
        script = self.folder / "step.sh"
        script.write_text(command)
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        environment = {**self.environment, **variables}
        step = subprocess.Popen(
            shell,
            env=environment,
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # A job in the background ignores SIGINT, and so would bash, which could set no trap.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.steps.append(step)
        return step

    def end(self) -> None:
        """Kill what is left of the steps."""
        for step in self.steps:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(step.pid, signal.SIGKILL)

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a step until it ends."""
        started = self.start(command, **variables)
        out, err = started.communicate()
        return subprocess.CompletedProcess(command, started.returncode, out, err)

    def action(self, inputs: Mapping[str, str]) -> list[subprocess.CompletedProcess[str]]:
        """Run the steps of action.yml, as far as they are this project's own."""
        described = load(ROOT / "action.yml")
        defaults = {name: row.get("default", "") for name, row in described["inputs"].items()}
        known = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()}
        known["github.event.pull_request.number"] = "12"
        failed, done = False, []
        for step in described["runs"]["steps"]:
            if "uses" in step or (failed and step.get("if") != "always()"):
                continue
            values = {
                **known,
                **{f"steps.measure.outputs.{k}": v for k, v in self.output().items()},
            }
            variables = {name: filled(text, values) for name, text in step.get("env", {}).items()}
            done.append(self.run(step["run"], **variables))
            failed = failed or done[-1].returncode != 0
        return done


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    made = Runner(tmp_path)
    made.environment["MADE_UP"] = str(made_up_upgrade(tmp_path / "made-up"))
    yield made
    made.end()


INPUTS = {"base": "tensorflow==2.20.*", "new": "tensorflow==2.21.* X=1"}


def test_a_regression_is_on_the_page_in_annotations_and_in_the_exit_code(runner: Runner):
    trainers = "train.py\nsingle_process\n"
    done = runner.action({**INPUTS, "trainer": trainers, "arguments": "--strict --seed 3"})
    assert [step.returncode for step in done] == [0, 0, 0, 0, 1], [d.stderr for d in done]
    directory = Path(runner.output()["directory"])
    assert runner.output()["exit-code"] == "1"
    (measured,) = (call for call in runner.calls if "--base" in call)
    train = runner.folder / "workspace" / "train.py"
    assert measured == (
        "-m reports upgrade --base tensorflow==2.20.* --new tensorflow==2.21.* X=1 --budget 10m "
        f"--trainer {train} --trainer single_process --strict --seed 3 --run-dir {directory}"
    )
    assert runner.outputs["GITHUB_STEP_SUMMARY"].read_text() == "## the report\n"
    annotations = done[3].stdout.splitlines()
    assert [line.split("::")[1] for line in annotations] == [
        "error title=Stopped passing",
        "error title=Slower",
        "warning title=Undecided",
    ]
    assert annotations[0].endswith("100 %25 wrong really")
    assert (directory / "pull-request").read_text() == "12\n"


def test_a_report_without_a_regression_passes(runner: Runner):
    runner.environment["EXIT_CODE"] = "0"
    done = runner.action(INPUTS)
    assert [step.returncode for step in done] == [0, 0, 0, 0, 0], [d.stderr for d in done]


def test_bad_input_fails_and_says_where_the_reason_is(runner: Runner):
    runner.environment["EXIT_CODE"] = "2"
    done = runner.action(INPUTS)
    assert [step.returncode for step in done] == [0, 0, 0, 0, 2], [d.stderr for d in done]
    assert "log of the step before" in runner.outputs["GITHUB_STEP_SUMMARY"].read_text()


def step_of(name: str) -> str:
    """Return the command of a step of action.yml."""
    steps = load(ROOT / "action.yml")["runs"]["steps"]
    return next(step["run"] for step in steps if step.get("name") == name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled_job_has_a_report_of_what_was_done(runner: Runner, number: signal.Signals):
    """GitHub signals the process of the step, and no other."""
    given = {"BASE": "a", "NEW": "b", "BUDGET": "10m", "EXIT_CODE": "143"}
    step = runner.start(step_of("Measure"), **given)
    wait_until("the measurement", (runner.folder / "measuring").exists, 120)
    step.send_signal(number)
    _, errors = step.communicate(timeout=120)
    assert step.returncode == 0, errors
    assert runner.output()["exit-code"] == "143"
    done = runner.run(step_of("Report"), DIRECTORY=runner.output()["directory"])
    assert done.returncode == 0, done.stderr
    assert runner.outputs["GITHUB_STEP_SUMMARY"].read_text() == "## the report\n"


def test_killed_measurement_is_reported_from_its_record(runner: Runner):
    directory = runner.folder / "made-up"
    (directory / "upgrade.md").unlink()
    done = runner.run(step_of("Report"), DIRECTORY=str(directory))
    assert done.returncode == 0, done.stderr
    summary = runner.outputs["GITHUB_STEP_SUMMARY"].read_text()
    assert summary.startswith("## ❌ 1 test stopped passing")
    assert (directory / "upgrade.md").read_text() == summary


@pytest.fixture
def comment(runner: Runner) -> Any:
    """Return a function that runs the step of the comment, with a report of pull request 12."""
    (runner.folder / "made-up" / "pull-request").write_text("12\n")
    body = runner.folder / "body"

    def run(**variables: str) -> tuple[subprocess.CompletedProcess[str], list[str], str]:
        given = {
            "DIRECTORY": str(runner.folder / "made-up"),
            "REPOSITORY": "owner/name",
            "HEAD_SHA": "abc",
            "HEAD_OF_PULL_REQUEST": "abc",
            "COMMENT": "",
            "BODY": str(body),
            **variables,
        }
        done = runner.run(str(ROOT / ".github" / "upgrade" / "comment.sh"), **given)
        calls = runner.calls if (runner.folder / "calls").exists() else []
        return done, calls, body.read_text() if body.exists() else ""

    return run


def test_the_comment_is_written_once_and_then_updated(comment: Any):
    done, calls, body = comment()
    assert done.returncode == 0, done.stderr
    assert "--method POST repos/owner/name/issues/12/comments" in calls[-1]
    assert body == "<!-- tf-distribute-conformance upgrade  -->\n## the report\n"
    done, calls, _ = comment(COMMENT="77 78")
    assert "--method PATCH repos/owner/name/issues/comments/77 " in calls[-1]


def test_no_comment_on_a_pull_request_that_was_not_measured(comment: Any, runner: Runner):
    done, calls, body = comment(HEAD_OF_PULL_REQUEST="other")
    assert (done.returncode, body) == (0, "")
    assert "--method" not in " ".join(calls)
    (runner.folder / "made-up" / "pull-request").write_text("12/../../x\n")
    done, _, body = comment()
    assert (done.returncode, body) == (1, "")
    (runner.folder / "made-up" / "pull-request").unlink()
    done, _, body = comment()
    assert (done.returncode, body) == (0, "")


def test_a_long_report_fits_a_comment(comment: Any, runner: Runner):
    (runner.folder / "made-up" / "upgrade.md").write_text("x" * 100_000)
    _, _, body = comment()
    assert 60_000 < len(body) < 65_536


def test_workflows_use_what_exists():
    """The comment belongs to the workflow `upgrade` and to the artifact of the action."""
    action, comment, upgrade = (
        load(ROOT / path)
        for path in (
            "action.yml",
            ".github/workflows/comment.yml",
            ".github/workflows/upgrade.yml",
        )
    )
    assert comment["on"]["workflow_run"]["workflows"] == [upgrade["name"]]
    download = comment["jobs"]["comment"]["steps"][1]
    assert download["with"]["name"] == action["inputs"]["artifact"]["default"]
    for job in upgrade["jobs"].values():
        (step,) = (step for step in job["steps"] if step["uses"] == "./")
        assert set(step["with"]) <= set(action["inputs"])


def test_the_matrix_has_all_environments_of_its_label(tmp_path: Path):
    """The job that lists them is run here; a label that tox cannot read is an error."""
    workflow = load(ROOT / ".github/workflows/matrix.yml")
    (step,) = (
        step for step in workflow["jobs"]["environments"]["steps"] if step.get("id") == "list"
    )
    output = tmp_path / "output"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", step["run"]],
        env={**os.environ, "PATH": path, "GITHUB_OUTPUT": str(output)},
        cwd=ROOT,
        check=True,
    )
    name, _, value = output.read_text("utf-8").strip().partition("=")
    assert name == "names"
    names = json.loads(value)
    assert {"tf211", "tf221", "tf216-keras3-then", "nightly"} <= set(names)
    assert all(map(is_tox_environment, names))


def test_the_made_up_upgrade_is_one(runner: Runner):
    found = measure.load(runner.folder / "made-up")
    assert isinstance(found.runs["new"], frame.RunFrames)
    assert json.loads((runner.folder / "made-up" / measure.RECORD).read_text())["budget_s"] == 600
