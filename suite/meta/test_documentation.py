"""Tests of README.md and docs/: links, commands and options exist, and tables are complete."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shlex
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from reference_trainers import TRAINERS, workload
from reports.__main__ import COMMANDS
from reports.core.verdicts import NAMES
from suite.harness.checks import reproductions
from suite.harness.core.settings import OPTIONS
from suite.meta.sources import ROOT

DOCS = ROOT / "docs"
MOST_LINES = 150  # of the README: one screen to find the way
INSTALL = (
    "python3 -m venv venv && venv/bin/pip install -e '.[tensorflow]' && venv/bin/pytest suite/",
    (
        "python3 -m venv venv-dev && venv-dev/bin/pip install -e '.[dev]' "
        "&& venv-dev/bin/pytest suite/meta"
    ),
)
PYTEST = {"--collect-only", "--durations", "--help"}
# Options of other programs that pages name.
OTHERS = {"--security-opt", "--help", "--seeds", "--setup"}
SUITE_CODES = {*map(int, pytest.ExitCode), 128 + signal.SIGTERM}
TASK_CODES = {0, 2, 42, 77, reproductions.NO_ANSWER}


def pages() -> list[Path]:
    """Return the README and all pages that are written by hand."""
    found = [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    generated = DOCS / "reference" / "claims"
    return [ROOT / "README.md", *sorted(p for p in found if generated not in p.parents)]


@cache
def generate() -> ModuleType:
    """Return docs/generate.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


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
        return unknown + [name for name in words[2].split(",") if name not in tox_environments()]
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
def tox_environments() -> set[str]:
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "tox.ini")
    return {name.removeprefix("testenv:") for name in parsed.sections()}


@cache
def known_options() -> set[str]:
    """Return all options of the suite, its reports, its campaigns, trainers and findings."""
    programs = [ROOT / "suite" / "campaigns" / "__main__.py", *(DOCS / "findings").glob("*.py")]
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
    assert f"\n{generate().support_rows()}\n" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_shows_lines_of_the_recorded_run():
    (sample,) = re.findall(
        r"^```text\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S
    )
    lines = [line for line in sample.splitlines() if line != "..."]
    assert len(lines) > 5
    assert set(lines) <= set(generate().shown("one-approach").splitlines())


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
def test_generated_parts_exist(path: Path):
    made = generate()
    for name, argument in made.MARKER.findall(path.read_text("utf-8")):
        assert name in made.PARTS
        if name in ("evidence", "fault-overview"):
            assert argument in (*made.CAMPAIGNS, "faults")
        elif name.startswith("recorded-"):
            assert made.PARTS[name](argument).strip()
        elif name == "pages-in":
            assert (DOCS / f"{argument}.md").is_file()
        elif name != "claims-index":  # of test_claims.py
            assert made.PARTS[name]().strip()


@pytest.mark.parametrize("name", ["one-approach", "kill-a-worker", "upgrade"])
def test_recorded_commands_are_still_understood(name: str):
    (words,) = commands(generate().recorded_command(name))
    assert unknown_words(words) == []
    info = json.loads((DOCS / "recorded" / name / "run.json").read_text("utf-8"))
    assert info["exit_code"] == 0


def test_each_promise_has_a_name():
    made = generate()
    assert {made.name_of(promise) for promise in made.PROMISES} >= {"fail", "block", "anything"}


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
