"""Tests of `python -m reports upgrade`: its sides, environments, order of work, page and end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.ab import suite_run
from reports.rundir import frame
from reports.rundir.frame import BadInput
from reports.upgrade import environments, measure, sides
from reports.upgrade.measure import LOOKS, Measured, Record
from reports.upgrade.page import Page
from suite.harness.core.deadlines import wait_until
from suite.meta import made_up_run
from suite.meta.made_up_run import MULTI, SINGLE
from suite.meta.test_reports_paired import TEST, row, turns

OTHERS = [TEST.replace("single_process", name) for name in ("keras_mirrored", "a_third")]


def read(text: str) -> sides.Side:
    return sides.read("base", text)


def pair(base: str, new: str, pythons: tuple[str, str] = ("python-a", "python-b")) -> sides.Pair:
    return sides.Pair(sides.read("base", base), sides.read("new", new), pythons)


def test_words_of_a_side(tmp_path: Path):
    wheel = tmp_path / "tensorflow-2.22-py3-none-any.whl"
    wheel.touch()
    words = tmp_path / "words.txt"
    words.write_text("# for the nightly build\ntf_keras==2.21.*  XLA_FLAGS='-a -b'\n")
    side = read(f"tensorflow==2.21.* {wheel} {sys.executable} git:v1 @{words} --keras=keras3")
    requirements = ("tensorflow==2.21.*", str(wheel), "tf_keras==2.21.*")
    assert side.requirements == tuple(sorted(requirements))
    assert side.interpreter == sys.executable
    assert side.commit == "v1"
    assert side.variables == ("XLA_FLAGS=-a -b",)
    assert side.options == (("--keras", "keras3"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "name a requirement, such as tensorflow==2.21.*"),
        ("tensorflow=2.21", "neither a requirement (tensorflow==2.21.*), a wheel, an interpreter"),
        ("./missing/python", "no program that can be started"),
        ("missing.whl", "there is no such wheel"),
        ("@missing.txt", "@missing.txt: cannot be read: No such file or directory"),
        ("git:", "the commit, branch or tag is missing"),
        ("git:a git:b", "a second commit; name one"),
        ("python3 python3", "a second interpreter; name one"),
        ("--seed 1", "only --backend and --keras can differ"),
        ("--backend", "--backend: a value is missing"),
        ("'a", "No closing quotation"),
    ],
)
def test_wrong_words_are_named(text: str, words: str):
    with pytest.raises(BadInput, match=r"^--base") as caught:
        read(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("base", "new", "pythons", "arguments"),
    [
        ("a", "a", ("p", "p"), ["--base", "same", "--python", "p"]),
        ("a", "b", ("p", "q"), ["--base", "p", "--new", "q"]),
        (
            "a --backend ring",
            "a --backend auto",
            ("p", "p"),
            ["--base", "ring", "--new", "auto", "--python", "p"],
        ),
        (
            "a X=1 --backend ring",
            "a --backend ring",
            ("p", "p"),
            ["--base", "same", "--python", "p", "--backend", "ring", "--base-env", "X=1"],
        ),
        # The same Keras under two names is no second difference.
        (
            "a --keras keras2",
            "b --keras tf_keras",
            ("p", "q"),
            ["--base", "p", "--new", "q", "--keras", "tf_keras"],
        ),
    ],
)
def test_arguments_of_step_times(
    base: str, new: str, pythons: tuple[str, str], arguments: Sequence[str]
):
    assert pair(base, new, pythons).paired_arguments() == arguments


def test_sides_that_differ_in_two_ways_are_refused():
    with pytest.raises(BadInput, match=r"more than one way \(environment, --backend\)"):
        pair("a --backend ring", "b --backend auto").paired_arguments()
    with pytest.raises(BadInput, match="--base: --backend: both sides must name one value"):
        pair("a", "a --backend auto", ("p", "p")).paired_arguments()


def test_each_side_gets_its_own_interpreter_and_options_for_verdicts():
    both = pair("a --keras keras2", "b --keras tf_keras")
    assert both.verdict_arguments(0) == ["--python", "python-a", "--keras", "keras2"]
    assert both.verdict_arguments(1) == ["--python", "python-b", "--keras", "tf_keras"]


def fake_install(made: list[str], failure: str = "") -> Any:
    def run(_: sides.Side, arguments: Sequence[str]) -> None:
        if "venv" in arguments:
            (Path(arguments[-1]) / "bin").mkdir(parents=True)
            (Path(arguments[-1]) / "bin" / "python").touch()
        elif failure:
            raise BadInput(failure)
        else:
            made.append(arguments[-1])

    return run


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    monkeypatch.setattr(environments, "_run", fake_install(made))
    first = environments.python_of(read("tensorflow==2.20.*"), tmp_path)
    assert environments.python_of(read("tensorflow==2.20.*"), tmp_path) == first
    assert made == ["tensorflow==2.20.*"]
    assert environments.python_of(read("tensorflow==2.21.*"), tmp_path) != first
    assert environments.python_of(read("tensorflow==2.20.*"), tmp_path, again=True) == first
    assert made == ["tensorflow==2.20.*", "tensorflow==2.21.*", "tensorflow==2.20.*"]


def test_an_environment_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(environments, "_run", fake_install([]))
    python = environments.python_of(read("tensorflow==2.20.*"), tmp_path / "cache")
    environments.remove(python)
    assert not any((tmp_path / "cache").iterdir())
    other = tmp_path / "own" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.touch()
    environments.remove(str(other))
    assert other.exists()


def test_nothing_is_left_of_an_environment_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(environments, "_run", fake_install([], "no such version"))
    with pytest.raises(BadInput, match="no such version"):
        environments.python_of(read("tensorflow==9"), tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_the_error_has_the_reason_of_pip(monkeypatch: pytest.MonkeyPatch):
    """A real pip without any index: nothing is fetched."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "no-such-package-at-all"]
    with pytest.raises(BadInput, match="cannot be installed: No matching distribution found"):
        environments._run(read("no-such-package-at-all"), pip)


def test_the_error_has_the_requirements_that_contradict_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A real pip with two releases of an empty package, and one that needs the later."""
    for name, version, needs in (("low", "1.0", ""), ("low", "2.0", ""), ("high", "1.0", "low>1")):
        facts = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        facts += f"Requires-Dist: {needs}\n" if needs else ""
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            place = f"{name}-{version}.dist-info"
            wheel.writestr(f"{place}/METADATA", facts)
            wheel.writestr(f"{place}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{place}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "high==1.0", "low==1.0"]
    with pytest.raises(environments.NotInstalled) as found:
        environments._run(read("high==1.0 low==1.0"), pip)
    assert found.value.reason == "The user requested low==1.0; high 1.0 depends on low>1"


def test_what_is_no_python_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="it is no Python interpreter"):
        environments.python_of(read("/bin/true tensorflow"), tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a git repository with two commits of `src/train.py`; the first is tagged v1."""
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    git = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "init", "-q"], check=True)
    for content in ("first", "second"):
        (root / "src" / "train.py").write_text(content)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", content], check=True)
        if content == "first":
            subprocess.run([*git, "tag", "v1"], check=True)
    (root / "src" / "train.py").write_text("not committed")
    return root


def test_a_commit_of_the_program_is_written_next_to_the_runs(repository: Path, tmp_path: Path):
    program = str(repository / "src" / "train.py")
    both = [sides.read("base", "git:v1"), sides.read("new", "git:HEAD")]
    paths = environments.programs_of(both, [program], tmp_path / "programs") or []
    assert [Path(path).read_text() for path in paths] == ["first", "second"]
    one = [sides.read("base", "git:v1"), sides.read("new", "X=1")]
    paths = environments.programs_of(one, [program], tmp_path / "programs") or []
    assert [Path(path).read_text() for path in paths] == ["first", "not committed"]
    assert environments.programs_of([read("a")], [program], tmp_path) is None


@pytest.mark.parametrize(
    ("commit", "trainers", "words"),
    [
        ("v9", ["src/train.py"], "--base git:v9: no commit of"),
        ("v1", [], "name the one program"),
        ("v1", ["single_process"], "name the one program"),
    ],
)
def test_a_commit_that_cannot_be_had(
    repository: Path, tmp_path: Path, commit: str, trainers: list[str], words: str
):
    paths = [str(repository / name) for name in trainers]
    with pytest.raises(BadInput, match=words):
        environments.programs_of([read(f"git:{commit}")], paths, tmp_path / "programs")


def test_the_first_of_each_trainer_is_looked_at_first():
    ids = [f"t::p[1-{name}]" for name in ("a-auto", "a-ring", "b-auto", "b-ring", "c")]
    assert [i[7:-1] for i in measure.spread(ids)] == ["a-auto", "b-auto", "c", "a-ring", "b-ring"]


class Machine:
    """Takes the place of pytest: writes made-up runs with the ratios and verdicts it is given."""

    def __init__(self, ratios: Mapping[str, Sequence[float]], look_s: float = 100.0) -> None:
        self.ratios = {test: list(own) for test, own in ratios.items()}
        self.verdicts: dict[str, list[dict[str, Any]]] = {"base": [], "new": []}
        self.results = {"base": 0.5, "new": 0.5}
        self.collectives = {"base": 2, "new": 2}
        self.heap = {"base": 0.0, "new": 0.0}
        self.looked: list[str] = []
        self.arguments: list[list[str]] = []
        self.now_s, self.look_s, self.stop_at = 0.0, look_s, ""
        self.pairs = 12

    def run(
        self, targets: Sequence[str], arguments: Sequence[str], directory: Path, *_: Any
    ) -> None:
        if directory.name == self.stop_at:
            raise suite_run.Stopped(signal.SIGTERM)
        self.arguments.append(list(arguments))
        version = "2.20.0" if directory.name == "base" else "2.21.0"
        info = {**made_up_run.INFO, "run_id": directory.name, "exit_code": 0}
        info["versions"] = {**info["versions"], "tensorflow": version}
        given = {"run_id": directory.name}
        if directory.name in self.verdicts:
            rows = [{**row, **given} for row in self.verdicts[directory.name]]
            test = made_up_run.test_id("conformance", "convergence", "loss", SINGLE)
            result = {"metric": "training_loss", "value": self.results[directory.name]}
            counted = {
                "metric": "step_collectives",
                "value": self.collectives[directory.name],
                "better": "lower",
            }
            numbers = [
                {**made_up_run.COMMON, **given, **one, "test": test, "unit": "1"}
                for one in (result, counted)
            ]
            made_up_run.write_numbers(directory, info, numbers, rows)
            self.now_s += 1000  # the verdicts are not part of the budget
            return
        (test,) = (name for name in self.ratios if targets[0].endswith(name))
        self.looked.append(test)
        self.now_s += self.look_s
        ratio = self.ratios[test].pop(0)
        trainer = test.split("[")[1].split("-")[0]
        rows = [
            {**row, **given, "test": test, "trainer": trainer}
            for row in (*turns(ratio or 1.0, self.pairs), *self.grown())
        ]
        verdict = "passed" if ratio else "failed"
        judged = made_up_run.verdict(
            trainer, "paired", "paired", verdict, **given, test=test, reason="worker/0 was killed"
        )
        made_up_run.write_numbers(directory, info, rows, [judged])

    def grown(self) -> list[dict[str, Any]]:
        """Return how many bytes a step the heap grows on each side, in each pair."""
        name = "paired_heap_growth_bytes_per_step"
        return [
            row(name, value + 1000 * math.sin(i), variant=side, repeat=i)
            for side, value in self.heap.items()
            for i in range(self.pairs)
        ]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine({TEST: [1.0] * LOOKS})
    monkeypatch.setattr(suite_run, "run", made.run)
    monkeypatch.setattr(suite_run, "collect", lambda *_: list(made.ratios))
    monkeypatch.setattr(measure.time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(environments, "python_of", lambda side, *_: f"/{side.name}/python")
    loads = made_up_run.verdict(SINGLE, "export", "loads")
    made.verdicts = {side: [loads] for side in measure.SIDES}
    monkeypatch.setenv("COLUMNS", "200")
    return made


def upgrade(directory: Path, *arguments: str) -> int:
    given = ["--base", "tensorflow==2.20.*", "--new", "tensorflow==2.21.*", "--run-dir"]
    return command.main(["upgrade", *given, str(directory), *arguments])


def test_nothing_changed(machine: Machine, tmp_path: Path, capsys: Any):
    assert upgrade(tmp_path / "up", "--strict", "--seed", "5", "--trainer", "single_process") == 0
    printed = capsys.readouterr().out
    assert printed.endswith("no change was found.\n")
    assert "As fast as before" in printed
    assert "tests: 1 on both sides, 1 without a change" in printed
    assert "tensorflow==2.20.*, which is TensorFlow 2.20.0, " in printed
    assert machine.looked == [TEST]
    common = ["--seed", "5", "--trainer", "single_process"]
    assert machine.arguments[0] == [*common, "--python", "/base/python"]
    assert machine.arguments[1] == [*common, "--python", "/new/python"]
    ends = ["--base", "/base/python", "--new", "/new/python", "--budget", "12"]
    assert machine.arguments[2] == [*common, *ends]
    assert command.main(["upgrade", str(tmp_path / "up")]) == 0
    assert capsys.readouterr().out == printed


def test_what_broke_and_what_became_slower_is_named(machine: Machine, tmp_path: Path, capsys: Any):
    machine.ratios = {TEST: [1.1], OTHERS[0]: [0.9], OTHERS[1]: [0.0]}
    both = {
        "broke": ("passed", "failed"),
        "works": ("failed", "passed"),
        "excused": ("passed", "known_deviation"),
        "other": ("unsupported", "known_deviation"),
    }
    for place, side in enumerate(measure.SIDES):
        machine.verdicts[side] = [
            made_up_run.verdict(SINGLE, "export", name, given[place], reason=f"{name} because")
            for name, given in both.items()
        ]
    machine.verdicts["new"].append(made_up_run.verdict(MULTI, "export", "alone"))
    machine.results["new"] = 0.6
    assert upgrade(tmp_path / "up", "--format", "md") == 1
    page = capsys.readouterr().out
    headline, *_ = page.splitlines()
    for words in (
        "2 tests stopped passing",
        "1 comparison slower",
        "1 comparison without a result",
        "1 test passes now",
        "1 comparison faster",
    ):
        assert words in headline
    order = [
        "### What stopped passing",
        "broke because",
        "excused because",
        "### Slower",
        "### Faster",
        "### What passes now",
        "### Numbers that differ",
        "| training_loss | 0\\.500000 | 0\\.600000 |",
        "### Undecided",
        "worker/0 was killed",
        "logs in step-times-003",
        "Verdicts that differ and are no regression",
        "unsupported in BASE, known deviation in NEW",
        "Tests of one side",
    ]
    places = [page.find(words) for words in order]
    assert -1 not in places, dict(zip(order, places, strict=True))
    assert places == sorted(places)
    written = json.loads((tmp_path / "up" / "upgrade.json").read_text())
    assert written["exit_code"] == 1
    answers = {one["answer"] for one in written["step_times"]}
    assert answers == {"regression", "improvement", "failed"}
    assert "What stopped passing" in (tmp_path / "up" / "upgrade.html").read_text()


def test_the_reason_of_most_tests_is_first(machine: Machine, tmp_path: Path, capsys: Any):
    names = {"one": "a rare reason", "two": "a usual reason", "three": "a usual reason"}
    for place, side in enumerate(measure.SIDES):
        machine.verdicts[side] = [
            made_up_run.verdict(SINGLE, "export", name, ("passed", "failed")[place], reason=reason)
            for name, reason in names.items()
        ]
    assert upgrade(tmp_path / "up", "--format", "md") == 1
    page = capsys.readouterr().out
    assert -1 < page.find("a usual reason") < page.find("a rare reason")


def test_numbers_of_a_step_that_increased_are_named(machine: Machine, tmp_path: Path, capsys: Any):
    machine.collectives["new"] = 4
    machine.heap["new"] = 200_000
    assert upgrade(tmp_path / "up", "--format", "md") == 1
    page = capsys.readouterr().out
    assert "2 numbers of a step increased" in page.splitlines()[0]
    assert "### Numbers of a step that changed" in page
    assert "| collectives | 2 → 4 | 2 | regression |" in page
    assert "| bytes that the heap grows |" in page
    written = json.loads((tmp_path / "up" / "upgrade.json").read_text())
    answers = {one["metric"]: one["answer"] for one in written["counts"]}
    assert answers == {
        "step_collectives": "regression",
        "heap_growth_bytes_per_step": "regression",
    }
    assert command.main(["upgrade", str(tmp_path / "up"), "--format", "annotations"]) == 1
    assert "::error title=Increased::" in capsys.readouterr().out


def test_equal_numbers_are_not_shown(machine: Machine, tmp_path: Path, capsys: Any):
    machine.results["new"] = 0.5 * (1 + 5e-5)
    upgrade(tmp_path / "up")
    assert "Numbers that differ" not in capsys.readouterr().out
    machine.ratios = {TEST: [1.0]}
    machine.results["new"] = 0.5 * (1 + 2e-4)
    upgrade(tmp_path / "again")
    assert "Numbers that differ" in capsys.readouterr().out


def test_undecided_comparisons_get_the_rest_of_the_budget(
    machine: Machine, tmp_path: Path, capsys: Any
):
    machine.ratios = {TEST: [1.0], OTHERS[0]: [1.019] * LOOKS, OTHERS[1]: [1.0]}
    assert upgrade(tmp_path / "up", "--budget", "1h") == 0
    assert machine.looked == [TEST, *OTHERS, *[OTHERS[0]] * (LOOKS - 1)]
    record = Record.read(tmp_path / "up")
    assert len(record.looks[OTHERS[0]]) == LOOKS
    found = measure.load(tmp_path / "up")
    assert len(found.comparisons[OTHERS[0]].log_ratios) == LOOKS * machine.pairs
    assert "1 step time undecided" in capsys.readouterr().out


def test_what_the_budget_did_not_reach_is_named(machine: Machine, tmp_path: Path, capsys: Any):
    machine.ratios = {test: [1.0] for test in (TEST, *OTHERS)}
    assert upgrade(tmp_path / "up", "--budget", "250", "--strict") == 3
    assert machine.looked == [TEST, OTHERS[0]]
    printed = capsys.readouterr().out
    assert "not looked at" in printed
    assert "--budget 2m more" in printed
    assert printed.endswith("no change was found; 1 step time undecided.\n")


def test_a_slower_step_must_stand_out_among_all_looks(machine: Machine, tmp_path: Path):
    """A change that one look alone would call significant is none among all of them."""
    machine.ratios, machine.pairs = {TEST: [1.03]}, 8
    upgrade(tmp_path / "up", "--budget", "60")
    found = measure.load(tmp_path / "up")
    many = Record(**{**vars(found.record), "tests": [TEST] * 10_000_000})
    assert found.answer(TEST).value == "regression"
    other = Measured(many, found.runs, found.comparisons, found.broken)
    assert other.answer(TEST).value == "cannot tell"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("base", "nothing could be compared"),
        ("new", "nothing could be compared"),
        ("step-times-001", "no change was found; 1 step time undecided"),
    ],
)
def test_a_signal_leaves_a_page_of_what_was_done(
    machine: Machine, tmp_path: Path, capsys: Any, at: str, words: str
):
    machine.stop_at = at
    assert upgrade(tmp_path / "up") == 143
    assert capsys.readouterr().out.endswith(f"{words} (stopped by SIGTERM).\n")
    assert (tmp_path / "up" / "upgrade.md").is_file()


@pytest.mark.usefixtures("machine")
def test_a_signal_while_packages_are_installed(tmp_path: Path, monkeypatch: Any):
    def stopped(*_: Any) -> str:
        raise suite_run.Stopped(signal.SIGTERM)

    monkeypatch.setattr(environments, "python_of", stopped)
    assert upgrade(tmp_path / "up") == 2
    assert not (tmp_path / "up").exists()


def test_pytest_gets_the_signal_and_ends_first(tmp_path: Path):
    """A real process: the signal arrives in pytest, which writes a line before it ends."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--run-dir')\n"
    )
    (tmp_path / "test_long.py").write_text(
        "import signal, time, pathlib, os\n"
        "def test_long():\n"
        "    def end(*_):\n"
        f"        pathlib.Path({str(tmp_path / 'ended')!r}).write_text('x')\n"
        "        os._exit(3)\n"
        "    signal.signal(signal.SIGTERM, end)\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"
        "    signal.pause()\n"
    )
    code = (
        "import sys; from pathlib import Path; from reports.ab import suite_run\n"
        "try:\n"
        "    with suite_run.stoppable():\n"
        "        suite_run.run(sys.argv[1:], ['-c', '/dev/null'], Path('none'))\n"
        "except suite_run.Stopped as error: sys.exit(128 + error.number)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, check=False
    )
    assert done.returncode == 143, done.stderr.decode()
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--base: name a side"),
        (["--base", "a"], "--new: name a side"),
        (["DIR", "--base", "a"], "not both"),
        (["DIR", "DIR"], "give one recorded upgrade"),
        (["DIR"], "no directory of an upgrade"),
        (["--base", "a", "--new", "b", "--budget", "5s"], "is not a duration from 60s"),
        (["--base", "a", "--new", "b", "--run-dir", "DIR"], "there is something"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, capsys: Any, arguments: Sequence[str], words: str):
    (tmp_path / "file").touch()
    given = [str(tmp_path) if word == "DIR" else word for word in arguments]
    try:
        code = command.main(["upgrade", *given])
    except SystemExit as error:  # argparse's own refusals
        code = error.code
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_damaged_record_is_one_line(tmp_path: Path):
    for content in ("{", '{"unknown": 1}'):
        (tmp_path / measure.RECORD).write_text(content)
        with pytest.raises(BadInput, match="is damaged"):
            measure.load(tmp_path)


def test_another_keras_on_the_new_side_is_compared(machine: Machine, tmp_path: Path, capsys: Any):
    old = made_up_run.verdict(SINGLE, "export", "loads", keras="keras2 2.15.0")
    failed = {"keras": "keras3 3.15.1", "reason": "it does not load"}
    new = made_up_run.verdict(SINGLE, "export", "loads", "failed", **failed)
    machine.verdicts = {"base": [old], "new": [new]}
    assert upgrade(tmp_path / "up") == 1
    printed = capsys.readouterr().out
    assert "keras: keras2 of the base is compared with keras3" in printed
    assert "1 test stopped passing" in printed
    assert "it does not load" in printed
    machine.verdicts = {"base": [old, new], "new": [new]}
    upgrade(tmp_path / "both")
    assert "keras2 of the base" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        ("tf_keras 2.21.0", "keras3 3.15.1", "tf_keras of the base is compared with keras3"),
        ("keras3 3.15.1", "tf_keras 2.21.0", "keras3 of the base is compared with tf_keras"),
        ("keras2 2.15.0", "tf_keras 2.21.0", ""),
    ],
)
def test_each_keras_is_compared_with_the_one_of_the_new_side(
    machine: Machine, tmp_path: Path, capsys: Any, base: str, new: str, said: str
):
    for side, keras in (("base", base), ("new", new)):
        machine.verdicts[side] = [made_up_run.verdict(SINGLE, "export", "loads", keras=keras)]
    upgrade(tmp_path / "up")
    printed = capsys.readouterr().out
    assert "tests: 1 on both sides" in printed
    assert said in printed
    assert ("of the base is compared" in printed) is bool(said)


@pytest.mark.usefixtures("machine")
def test_one_side_without_a_run_compares_no_verdict(tmp_path: Path):
    upgrade(tmp_path / "up")
    found = measure.load(tmp_path / "up")
    page = Page(Measured(found.record, {"base": found.runs["base"]}, {}, {}))
    assert page.exit_code() == 2
    assert "no complete run of new" in page.markdown()
    assert isinstance(found.runs["new"], frame.RunFrames)


SIGNALS_ITS_PARENT = """#!/bin/sh
trap 'echo cleaned up > {done}; exit 143' TERM
kill -TERM $PPID
touch {sent}
while :; do :; done
"""


def test_a_signal_at_the_start_of_pytest_reaches_it(tmp_path: Path, monkeypatch: Any):
    """The signal arrives before this process knows the process that it has started."""
    program, done, sent = (tmp_path / name for name in ("pytest", "done", "sent"))
    program.write_text(SIGNALS_ITS_PARENT.format(done=done, sent=sent))
    program.chmod(0o755)
    begin = subprocess.Popen.__init__

    def begin_slowly(*args: Any, **options: Any) -> None:
        begin(*args, **options)
        wait_until("the signal to be sent", sent.exists, 10)

    monkeypatch.setattr(subprocess.Popen, "__init__", begin_slowly)
    monkeypatch.setattr(suite_run.sys, "executable", str(program))
    with suite_run.stoppable(), pytest.raises(suite_run.Stopped, match="SIGTERM"):
        suite_run.collect([], [])
    assert done.read_text() == "cleaned up\n"
