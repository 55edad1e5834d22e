"""What `--base` and `--new` name: packages, an interpreter, a commit, variables, options.

A side is a line of words. The first row of KINDS that knows a word reads it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from reports.compare import run_groups
from reports.rundir.frame import BadInput

COMMIT = "git:"
FILE = "@"
OPTIONS = ("--backend", "--keras")  # options of pytest that may differ between the sides


@dataclass(frozen=True)
class Side:
    """One side as it was asked for.

    `requirements`: for pip, sorted. `interpreter`: absolute path, "" for that of the reports.
    `commit`: of the program's repository, "" for the files as they are. `variables`: NAME=VALUE.
    `options`: of pytest, as (option, value).
    """

    name: str  # base or new
    text: str
    requirements: tuple[str, ...] = ()
    interpreter: str = ""
    commit: str = ""
    variables: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> tuple[tuple[str, ...], str]:
        """Return what the Python environment depends on."""
        return self.requirements, self.interpreter

    def option(self, name: str) -> list[str]:
        """Return the values that the side gives an option."""
        return [value for option, value in self.options if option == name]


def read(name: str, text: str) -> Side:
    """Return the side that `--NAME TEXT` asks for; raise BadInput with the word that is wrong."""
    side = Side(name, text)
    words = list(_words(name, text))
    if not words:
        raise BadInput(f"--{name} {text!r}: name a requirement, such as tensorflow==2.21.*")
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            option, given, value = word.partition("=")
            if option not in OPTIONS:
                allowed = " and ".join(OPTIONS)
                raise BadInput(f"--{name}: {option}: only {allowed} can differ between the sides")
            if not given and not words:
                raise BadInput(f"--{name}: {option}: a value is missing")
            value = value if given else words.pop(0)
            side = replace(side, options=(*side.options, (option, value)))
        else:
            kind = next(kind for kind in KINDS if kind.knows(word))
            side = kind.add(side, word)
    return replace(side, requirements=tuple(sorted(set(side.requirements))))


def _words(name: str, text: str) -> Iterator[str]:
    """Yield the words; `@FILE` is replaced by the words of a file, in which # begins a comment."""
    for word in _split(name, text):
        if word.startswith(FILE) and len(word) > 1:
            try:
                content = Path(word[1:]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise BadInput(f"--{name} {word}: cannot be read: {reason}") from error
            yield from _split(name, content)
        else:
            yield word


def _split(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise BadInput(f"--{name} {text}: {error}") from error


@dataclass(frozen=True)
class Kind:
    """A kind of word: which words are of it, and what one adds to a side."""

    knows: Callable[[str], bool]
    add: Callable[[Side, str], Side]


def _commit(side: Side, word: str) -> Side:
    if side.commit:
        raise BadInput(f"--{side.name}: {word}: a second commit; name one")
    if not word.removeprefix(COMMIT):
        raise BadInput(f"--{side.name}: {word}: the commit, branch or tag is missing")
    return replace(side, commit=word.removeprefix(COMMIT))


def _variable(side: Side, word: str) -> Side:
    return replace(side, variables=(*side.variables, word))


def _interpreter(side: Side, word: str) -> Side:
    if side.interpreter:
        raise BadInput(f"--{side.name}: {word}: a second interpreter; name one")
    found = shutil.which(word)
    if found is None:
        raise BadInput(f"--{side.name}: {word}: no program that can be started")
    return replace(side, interpreter=os.path.abspath(found))


def _wheel(side: Side, word: str) -> Side:
    path = Path(word).resolve()
    if not path.is_file():
        raise BadInput(f"--{side.name}: {word}: there is no such wheel")
    return replace(side, requirements=(*side.requirements, str(path)))


def _requirement(side: Side, word: str) -> Side:
    try:
        Requirement(word)
    except InvalidRequirement as error:
        raise BadInput(
            f"--{side.name}: {word}: neither a requirement (tensorflow==2.21.*), a wheel, an "
            f"interpreter, {COMMIT}COMMIT, NAME=VALUE nor {FILE}FILE"
        ) from error
    return replace(side, requirements=(*side.requirements, word))


KINDS = (
    Kind(lambda word: word.startswith(COMMIT), _commit),
    Kind(lambda word: bool(re.match(r"[A-Z_][A-Z0-9_]*=(?!=)", word)), _variable),
    Kind(lambda word: word.endswith(".whl"), _wheel),
    Kind(lambda word: "/" in word or bool(re.fullmatch(r"python[\d.]*", word)), _interpreter),
    Kind(lambda _: True, _requirement),
)


@dataclass(frozen=True)
class Pair:
    """Both sides with what was made for them: interpreters, and the paths of the program."""

    base: Side
    new: Side
    pythons: tuple[str, str]
    programs: tuple[str, str] | None = None  # of a commit on a side

    def sides(self) -> tuple[Side, Side]:
        """Return base and new."""
        return self.base, self.new

    def difference(self) -> str:
        """Return the one property that step times can be compared by: "" if the sides are equal.

        Raise BadInput if there are several, since a slower step would have several causes.
        """
        base, new = self.base, self.new
        differs = {
            "environment": self.pythons[0] != self.pythons[1],
            "commit": self.programs is not None and base.commit != new.commit,
            **{name: _same(base, name) != _same(new, name) for name in OPTIONS},
        }
        names = [name for name, is_so in differs.items() if is_so]
        for name in set(names) & set(OPTIONS):
            for side in self.sides():
                if len(side.option(name)) != 1:
                    raise BadInput(f"--{side.name}: {name}: both sides must name one value")
        if len(names) > 1:
            raise BadInput(
                f"--base and --new differ in more than one way ({', '.join(names)}): change one "
                "at a time, or a difference has several possible causes"
            )
        return names[0] if names else ""

    def verdict_arguments(self, place: int) -> list[str]:
        """Return pytest's arguments that make a run one of this side: 0 is base, 1 is new."""
        side = self.sides()[place]
        arguments = ["--python", self.pythons[place]]
        if self.programs:
            arguments += ["--trainer", self.programs[place]]
        return [*arguments, *(word for pair in side.options for word in pair)]

    def paired_arguments(self) -> list[str]:
        """Return pytest's arguments for the measurement of both sides in turns."""
        base, new = self.base, self.new
        both = {
            "": ("same", ""),
            "environment": self.pythons,
            "commit": self.programs or ("", ""),
            **{name: ("".join(base.option(name)), "".join(new.option(name))) for name in OPTIONS},
        }[difference := self.difference()]
        arguments = ["--base", both[0]]
        arguments += ["--new", both[1]] if both[1] else []
        if difference != "environment":
            arguments += ["--python", self.pythons[1]]
        if self.programs and difference != "commit":
            arguments += ["--trainer", self.programs[1]]
        for name in OPTIONS:
            if name != difference:
                arguments += [word for value in new.option(name) for word in (name, value)]
        for side in self.sides():
            arguments += [w for text in side.variables for w in (f"--{side.name}-env", text)]
        return arguments


def _same(side: Side, option: str) -> list[str]:
    """Return the option's values, with the same name for a Keras that a release renamed."""
    return [run_groups.FLAVORS.get(value, value) for value in side.option(option)]
