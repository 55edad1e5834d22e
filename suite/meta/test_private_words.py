"""Tests that the project's texts use the terms of the field and American spelling.

Private words have a standard term: `told` is reported, `victim` is target, `struck` is affected.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from suite.harness.core.paths import ROOT

PRIVATE = """
tell tells teller tellers telling told untold play plays played playing struck strike strikes
striking hurt hurts whoever whom victim victims moment moments beside besides stands keeper keepers
intruder intruders intruded stranger strangers noticed plant plants planted mistaken nobody anybody
somebody everybody copies_are_in_step little_is_lost trains_again others_go_on in_turns
there_or_gone nobody_pretends all_stand_still_without_one
"""
BRITISH = """
colour colours flavour flavours behaviour behaviours neighbour neighbours favour honour honours
centre grey
"""
# Longer ones first, because `nobody` is also the beginning of a name.
WORDS = sorted(f"{PRIVATE} {BRITISH}".split(), key=len, reverse=True)
WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(WORDS)})(?![a-z])", re.I)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

# phrase -> reason why it stays, in all files
PHRASES = {
    r"cannot[ _-]tell": "an answer of `compare` and of reproductions",
    r"(?:fault|loss)_noticed_s": "metrics of old records, which the changelog maps to new names",
    r"\.tell\(\)": "Python's method of a file",
}
# file -> reason why it may have the words
FILES = {
    "LICENSE": "is not ours to edit",
    "reports/rundir/renamed.py": "maps names in old records to those of today",
    "suite/meta/test_private_words.py": "lists the words",
}
# Records of runs keep what was recorded.
RECORDED = ("docs/evidence/", "docs/recorded/", "reports/evidence/")
TEXTS = (".py", ".md", ".toml", ".yml", ".yaml", ".ini", ".cfg", ".css", ".js", ".j2", ".html")
ALLOWED = re.compile("|".join(PHRASES), re.I)


def private_words(text: str) -> list[str]:
    """Return `line: word` for each private word, also within a snake_case or camelCase name."""
    return [
        f"{number}: {word}"
        for number, line in enumerate(text.splitlines(), 1)
        for word in WORD.findall(ALLOWED.sub("", CAMEL.sub("_", line)))
    ]


def searched() -> dict[str, str]:
    """Return the contents of the project's text files by path."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("only a git checkout knows which files belong to the project")
    paths = (p for p in done.stdout.split("\0") if p and not p.startswith(RECORDED))
    texts = (p for p in paths if p.endswith(TEXTS) or "." not in p.rsplit("/", 1)[-1])
    return {p: (ROOT / p).read_text() for p in texts if (ROOT / p).is_file()}


def test_texts_have_no_private_word_outside_the_exceptions() -> None:
    texts = searched()
    assert len(texts) > 200
    found = {p: private_words(text) for p, text in texts.items() if p not in FILES}
    lines = [f"{path}:{words}" for path, each in found.items() for words in each]
    assert not lines, f"{len(lines)} private words\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("This is told here.", ["1: told"]),
        ("first\nThe Victim", ["2: Victim"]),
        ("def who_tells_it(x_2_told): ...", ["1: tells", "1: told"]),
        ("class FaultTeller: struckTask = 1", ["1: Teller", "1: struck"]),
        ("VICTIM_READY", ["1: VICTIM"]),
        ("data-moment='x' colour:red", ["1: moment", "1: colour"]),
        ("test_trains_again", ["1: trains_again"]),
        ("cannot tell, CANNOT_TELL, but tell", ["1: tell"]),
        ("playbook, momentum, explanted, color, standstill", []),
    ],
)
def test_private_word_is_found_also_within_a_name(text: str, found: list[str]) -> None:
    assert private_words(text) == found


@pytest.mark.parametrize("path", FILES)
def test_each_exception_is_needed(path: str) -> None:
    assert private_words((ROOT / path).read_text())
