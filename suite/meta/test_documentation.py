"""Tests of README.md and docs/: links, commands and options exist, and tables are complete."""

from __future__ import annotations

import configparser
import importlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from reference_trainers import TRAINERS
from reference_trainers.support import events, workload
from reports.__main__ import COMMANDS
from reports.core.verdicts import NAMES
from reports.matrix.cells import Matrix
from reports.matrix.columns import Column
from reports.rundir import event_files
from suite.harness.checks import reproductions
from suite.harness.core.settings import OPTIONS
from suite.meta.sources import ROOT

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))  # its modules are in no package
generate = importlib.import_module("generate")
tutorials = importlib.import_module("test_tutorials")
RECORDED = sorted((DOCS / "recorded").glob("*/run.json"))
MOST_LINES = 150  # of the README: one screen to find the way
INSTALL = (
    "python3 -m venv venv && venv/bin/pip install -e '.[tensorflow]' && venv/bin/pytest suite/",
    (
        "python3 -m venv venv-dev && venv-dev/bin/pip install -e '.[dev]' "
        "&& venv-dev/bin/pytest suite/meta -n 2"
    ),
)
PYTEST = {"--collect-only", "--durations", "--help"}
# Options of other programs that pages name.
OTHERS = {"--security-opt", "--help", "--seeds", "--setup"}
# A number with a unit, or a ratio with its interval. It comes from a record or from the code
# (`{{ NAME }}`, `generated: NAME`), and is not typed.
_NUMBER = (
    r"(?<![\w.])(?:\d(?:[\d.,]*\d)?|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|"
    r"thirty|forty|fifty|sixty|ninety|a hundred)"
)
_UNIT = (
    r"(?:%|percent|x\b(?! \d)|times|[µmn]?s\b|min\b|h\b|seconds?|minutes?|hours?|"
    r"[KMG]i?B\b|[KMG]bit/s|pairs|comparisons)"
)
FIGURE = re.compile(
    rf"{_NUMBER}(?: (?:to|or|and) {_NUMBER})?[ \n-]*{_UNIT}|\d\.\d+ \(\d\.\d+ to \d\.\d+\)",
    re.IGNORECASE,
)
# Page -> figure -> why it may be typed. A finding's page may also have numbers of its program.
TYPED: Mapping[str, Mapping[str, str]] = {
    "README.md": {"30 minutes": "of .ci/run, see test_the_readme_says_how_long_ci_waits"}
}
SUITE_CODES = {*map(int, pytest.ExitCode), 128 + signal.SIGTERM}
TASK_CODES = {0, 2, 42, 77, reproductions.NO_ANSWER}


def pages() -> list[Path]:
    """Return the README and all pages that are written by hand."""
    found = [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    generated = DOCS / "reference" / "claims"
    return [ROOT / "README.md", *sorted(p for p in found if generated not in p.parents)]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """Return the text without code, comments, values and the targets of links."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]*`|<!--.*?-->|\{\{.*?\}\}|(?<=\])\([^)\s]*\)", "", text)


def typed_figures(text: str) -> list[str]:
    return [" ".join(figure.split()) for figure in FIGURE.findall(prose(text))]


def slugs(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def broken_links(path: Path, text: str) -> list[str]:
    """Return the links to files or headings that do not exist."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", without_code(text)):
        name, _, anchor = target.partition("#")
        page = path.parent / name if name else path
        if not page.is_file() or (anchor and anchor not in slugs(page.read_text("utf-8"))):
            broken.append(target)
    return broken


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of the console blocks, without the environment's path."""
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                for part in line[2:].split("&&"):
                    words = shlex.split(part, comments=True)
                    if words:
                        yield [re.sub(r"^[\w.-]+/bin/", "", words[0]), *words[1:]]


def unknown_words(words: list[str]) -> list[str]:
    """Return the options, modules, commands, environments and files of a command that do not exist.

    Only commands of this project are examined.
    """
    flags = [word.split("=")[0] for word in words if word.startswith("--")]
    files = [w.split("::")[0] for w in words if re.match(r"(suite|docs|reports/\w+)/", w)]
    real = [f for f in files if not f.startswith("reports/runs") and "NAME" not in f]
    unknown = [f for f in real if not (ROOT / f).exists()]
    if words[0] == "pytest":
        known = {row.flag for row in OPTIONS.values()} | PYTEST
        return unknown + [flag for flag in flags if flag not in known]
    if words[0] == "tox":
        if words[1] == "-m":
            return unknown + [name for name in words[2:3] if name not in tox_labels()]
        return unknown + [name for name in words[2].split(",") if not is_tox_environment(name)]
    if words[0].startswith("python") and words[1] == "-m" and words[2] != "venv":
        return unknown + unknown_module(words[2], words[3:], flags)
    return unknown


def unknown_module(module: str, arguments: list[str], flags: list[str]) -> list[str]:
    if (
        not (ROOT / module.replace(".", "/")).is_dir()
        and not (ROOT / f"{module.replace('.', '/')}.py").is_file()
    ):
        return [module]
    if module == "reports":
        rows = {row.name: row for row in COMMANDS}
        if arguments[0] not in rows:
            return [arguments[0]]
        known = {name for names, _ in rows[arguments[0]].options for name in names}
        return [flag for flag in flags if flag not in known]
    return []


@cache
def tox_settings() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "tox.ini")
    return parsed


def tox_labels() -> list[str]:
    lines = tox_settings()["tox"]["labels"].strip().splitlines()
    return [line.partition("=")[0].strip() for line in lines]


def is_tox_environment(name: str) -> bool:
    """Return True if there is a section for it, or if the main one has all parts of its name."""
    settings = tox_settings()
    parts = re.findall(
        r"\w+(?=[\w,!-]*: )", settings["testenv"]["deps"] + settings["testenv"]["commands"]
    )
    return settings.has_section(f"testenv:{name}") or set(name.split("-")) <= set(parts)


@cache
def known_options() -> set[str]:
    """Return all options of the suite, its reports, its campaigns, trainers and findings."""
    names = ("campaigns/__main__.py", "mutants/__main__.py", "doctor/command.py", "new_trainer.py")
    commands = [ROOT / "suite" / name for name in names]
    programs = [*commands, *(DOCS / "findings").glob("*.py")]
    of_reports = {name for row in COMMANDS for names, _ in row.options for name in names}
    texts = [workload.parser(row.name, "", row.flags).format_help() for row in TRAINERS]
    texts += [path.read_text("utf-8") for path in programs]
    of_programs = {flag for text in texts for flag in re.findall(r"--[a-z-]+", text)}
    return {row.flag for row in OPTIONS.values()} | of_reports | of_programs | PYTEST | OTHERS


def unknown_options(text: str) -> list[str]:
    """Return the options in inline code that no program of the project has."""
    inline = re.findall(r"`([^`\n]+)`", without_code(text))
    named = {flag for part in inline for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", part)}
    return sorted(named - known_options())


def exit_codes(text: str) -> set[int]:
    """Return the exit codes that a text names."""
    found = re.findall(r"exit(?:s with|ed with)?(?: code)?s? (\d+)(?: and (\d+))?", text)
    return {int(code) for pair in found for code in pair if code}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("command", INSTALL)
def test_the_readme_has_the_installation_commands(command: str):
    assert f"$ {command}\n" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_says_which_approaches_train():
    printed = generate.matrix.training().splitlines()
    table = "\n".join(line for line in printed if line.startswith("|"))
    assert f"\n{table}\n" in (ROOT / "README.md").read_text("utf-8")


def test_versions_are_compared_with_their_newest_keras():
    labels = {
        "2.15.1": ("keras2 2.15.0",),
        "2.16.2": ("tf_keras 2.16.0", "keras3 3.4.1", "keras3 3.15.1"),
        "2.17.1": ("tf_keras 2.17.0", "keras3 3.6.0", "keras3 3.15.1"),
    }
    named = [(version, keras) for version in labels for keras in labels[version]]
    columns = tuple(Column(version, keras, "3.11") for version, keras in named)
    pairs = [
        (f"{old.minor} {old.keras}", f"{new.minor} {new.keras}")
        for old, new in generate.matrix.neighbors(Matrix(columns, checks=(), published={}))
    ]
    assert pairs == [
        ("2.15 keras2 2.15.0", "2.16 tf_keras 2.16.0"),
        ("2.16 tf_keras 2.16.0", "2.17 tf_keras 2.17.0"),
        ("2.17 tf_keras 2.17.0", "2.17 keras3 3.15.1"),
        ("2.16 keras3 3.15.1", "2.17 keras3 3.15.1"),
        ("2.16 keras3 3.4.1", "2.16 keras3 3.15.1"),
        ("2.17 keras3 3.6.0", "2.17 keras3 3.15.1"),
    ]


def test_the_readme_shows_lines_of_the_recorded_run():
    (sample,) = re.findall(
        r"^```text\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S
    )
    lines = [line for line in sample.splitlines() if line != "..."]
    assert len(lines) > 5
    assert set(lines) <= set(generate.recorded.shown("one-approach").splitlines())


def test_the_readme_says_how_long_ci_waits():
    (minutes,) = re.findall(
        r"timeout .* (\d+)m .*/bin/pytest. .\$@.", (ROOT / ".ci" / "run").read_text("utf-8")
    )
    assert f"CI allows {minutes} minutes" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_names_the_verdicts():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(NAMES) <= set(rows)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_commands_options_and_exit_codes_exist(path: Path):
    text = path.read_text("utf-8")
    assert broken_links(path, text) == []
    assert [word for words in commands(text) for word in unknown_words(words)] == []
    assert unknown_options(text) == []
    assert exit_codes(text) <= SUITE_CODES | TASK_CODES


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_parts_are_known(path: Path):
    text = path.read_text("utf-8")
    assert set(generate.VALUE.findall(text)) <= set(generate.VALUES)
    for name, argument in generate.MARKER.findall(text):
        assert name in generate.PARTS
        if name in ("evidence", "fault-overview"):
            assert argument in (*generate.evidence.CAMPAIGNS, "faults")
        elif name.startswith("recorded-") and argument:
            assert (DOCS / "recorded" / argument / "run.json").is_file()
        elif name == "example-change":
            assert generate.PARTS[name](argument).strip()
        elif name == "pages-in":
            assert (DOCS / f"{argument}.md").is_file()


def test_page_with_an_empty_part_is_not_built(monkeypatch: pytest.MonkeyPatch):
    """The build of the documentation makes all parts, which takes longer than these tests."""
    monkeypatch.setattr(generate, "PARTS", {"full": lambda: "text", "empty": lambda: "\n"})
    page = "before\n<!-- generated: {} -->\nafter"
    assert generate.expanded(page.format("full")) == "before\ntext\nafter"
    with pytest.raises(ValueError, match="generated: empty --> is empty"):
        generate.expanded(page.format("empty"))


@pytest.mark.parametrize("name", generate.VALUES)
def test_values_of_sentences_have_a_number(name: str):
    assert re.search(r"\d", generate.VALUES[name]())
    assert any(f"{{{{ {name} }}}}" in path.read_text("utf-8") for path in pages())


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_figures_are_not_typed(path: Path):
    text = path.read_text("utf-8")
    program = path.with_suffix(".py")
    allowed = TYPED.get(str(path.relative_to(ROOT)), {})
    found = [figure for figure in typed_figures(text) if figure not in allowed]
    if program.is_file():  # a finding: its page may name the constants of its program
        constants = set(re.findall(r"\d+", program.read_text("utf-8")))
        found = [figure for figure in found if figure.split()[0] not in constants]
    assert found == []
    assert set(allowed) <= set(typed_figures(text))


@pytest.mark.parametrize(
    "text",
    [
        "takes 5 s",
        "is 1.2\ntimes",
        "1.157 (1.136 to 1.178)",
        "2 to 11 minutes",
        "twenty seconds",
        "| 3.4 ms |",
        "9 %",
    ],
)
def test_a_typed_figure_is_found(text: str):
    assert typed_figures(text)


@pytest.mark.parametrize(
    "text", ["TensorFlow 2.15", "```\ntakes 5 s\n```", "{{ 5 s }}", "`--budget 5 s`", "28 x 28"]
)
def test_what_is_no_typed_figure_is_ignored(text: str):
    assert not typed_figures(text)


def test_tutorials_are_run():
    pages_here = {path.stem for path in (DOCS / "tutorials").glob("*.md")}
    assert set(tutorials.TUTORIALS) == pages_here - {"index"}
    commands_here = {c.line for name in tutorials.TUTORIALS for c in tutorials.commands(name)}
    assert set(tutorials.NOT_RUN) <= commands_here


@pytest.mark.parametrize("name", tutorials.TUTORIALS)
def test_tutorial_has_only_commands_and_generated_output(name: str):
    assert tutorials.untested(tutorials.page(name)) == []
    # A result that the text explains is one that the page shows.
    explained = re.findall(r"`([✓≈○✗!↑] [^`]+)`", tutorials.page(name))
    shown = "\n".join(command.shown for command in tutorials.commands(name))
    assert [cell for cell in explained if f" {cell}" not in shown] == []


@pytest.mark.parametrize("block", ["```bash\nls\n```", "```text\n✓ 4\n```", "```console\nls\n```"])
def test_untested_block_of_a_tutorial_is_found(block: str):
    assert tutorials.untested(block)


def test_output_of_another_structure_is_found():
    shown = "time to detect  2 s\n✓ 4  ≈ 1 of 8"
    assert not tutorials.words(shown) - tutorials.words("time to  ✓ 12\ndetect 1 min  ≈ 2 of 9")
    assert tutorials.words(shown) - tutorials.words("time to detect  2 s\n✓ 4  ✗ 1 of 8")


@pytest.mark.parametrize(
    ("line", "code"), [("pytest suite/", 0), ("pytest suite/ --trainer a.py  # exits with 1", 1)]
)
def test_tutorial_names_an_exit_code_other_than_0(line: str, code: int):
    assert tutorials.expected_code(line, "") == code


def test_changes_of_the_example_apply_in_the_order_of_the_tutorial(tmp_path: Path):
    shutil.copytree(generate.paths.EXAMPLE, tmp_path / "mnist")
    lines = [c.line for c in tutorials.commands("mend-a-program") if c.line.startswith("git")]
    assert len(lines) == len(list(generate.paths.EXAMPLE.glob("*.diff")))
    for line in lines:
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True)
        compile((tmp_path / "mnist" / "train.py").read_text("utf-8"), "train.py", "exec")


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RECORDED))
def test_recorded_commands_are_still_understood(name: str):
    (words,) = commands(generate.recorded.command(name))
    assert unknown_words(words) == []
    info = json.loads((DOCS / "recorded" / name / "run.json").read_text("utf-8"))
    assert info["exit_code"] == int(name in generate.recorded.WITH_FINDINGS)


def test_each_recorded_run_is_shown():
    shown = {a for page in pages() for _, a in generate.MARKER.findall(page.read_text("utf-8"))}
    assert {path.parent.name for path in RECORDED} <= shown


def test_events_are_written_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (ROOT / "docs" / "reference" / "events.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
    names = {"step": 1, "loss": 0.5, "batch_size": 64}
    exec(code, dict(names))
    path = tmp_path / "worker-1.jsonl"
    role = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    own = {"TRAINER_EVENTS": str(path), "TRAINER_ATTEMPT": "2", "TF_CONFIG": json.dumps(role)}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    exec(code, dict(names))
    (event,) = map(event_files.parse, path.read_text("utf-8").splitlines())
    assert (event["event"], event["task"], event["attempt"]) == ("step", "worker/1", 2)
    assert event.keys() >= {*events.SCHEMA["step"], *event_files.COMMON}


def test_each_promise_has_a_name():
    named = generate.reference
    assert {named.name_of(promise) for promise in named.PROMISES} >= {"fail", "block", "anything"}


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/none.md)",
        "[a](docs/how-to/ci.md#no-such-heading)",
        "```console\n$ pytest suite/ --no-such-option\n```",
        "```console\n$ venv/bin/pytest suite/no_such_folder\n```",
        "```console\n$ python -m reports no-such-command\n```",
        "```console\n$ python -m reports show --no-such-option latest\n```",
        "```console\n$ python -m suite.none\n```",
        "```console\n$ tox -e none\n```",
        "```console\n$ tox -e tf217-keras9\n```",
        "```console\n$ tox -m none\n```",
        "use `--no-such-option`",
        "it exits with 99",
    ],
)
def test_what_does_not_exist_is_found(text: str):
    path = ROOT / "README.md"
    assert (
        broken_links(path, text)
        or [word for words in commands(text) for word in unknown_words(words)]
        or unknown_options(text)
        or exit_codes(text) - (SUITE_CODES | TASK_CODES)
    )
