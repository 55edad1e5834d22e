"""Propose changes of expectations.toml that agree with recorded verdicts.

A test that passes despite a row makes the row narrower. A test that fails without a row gets one.
The text of the file is changed in place, so that its comments and its order stay. What only a
person can write, the reason and the link, is left empty, and the suite refuses such a row.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from reports.core import labels, toml, verdicts
from reports.core.text import one_line
from reports.rundir.frame import BadInput

DEFAULT = Path(__file__).resolve().parents[2] / "suite" / "expectations.toml"
HEADER = "[[expectation]]"
MAX_MESSAGE_CHARS = 100
PASSES = re.compile(r"passes, but was expected \w+: ")
WITHOUT_ROW = "unsupported without a row in expectations.toml: "
# What a reason has before TensorFlow's message: the row, and the task with the end of its process.
BEFORE_MESSAGE = re.compile(
    rf"^({re.escape(WITHOUT_ROW)}|\w+ was expected with /.*/, but this came: )?"
    r"(\w+/\d+ .*?\(exit -?\d+\): )?"
)
# Keys before which a new `tensorflow` goes, as in the head of the file.
BEFORE = ("trainer", "test", "except", "scene", "backend")


@dataclass(frozen=True)
class Proposal:
    """The file before and after, and what no patch can say."""

    before: str
    after: str
    notes: tuple[str, ...]

    def patch(self, name: str) -> str:
        """Return a unified diff, "" if nothing is proposed."""
        old, new = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


@dataclass
class _Seen:
    """The versions of TensorFlow, without patch release, with and without a row's deviation."""

    deviates: set[str] = field(default_factory=set)
    passes: set[str] = field(default_factory=set)


def propose(path: Path, rows: pd.DataFrame) -> Proposal:
    """Return what the verdicts ask for; raise BadInput if the file has no rows of expectations."""
    try:
        before = path.read_text("utf-8")
        parsed = toml.loads(before)["expectation"]
    except (OSError, UnicodeDecodeError, toml.TOMLDecodeError, LookupError) as error:
        raise BadInput(f"{path} is not a table of expectations: {one_line(str(error))}") from error
    head, *blocks = re.split(rf"^(?={re.escape(HEADER)})", before, flags=re.MULTILINE)
    if len(blocks) != len(parsed):
        raise BadInput(f"{path}: each row must begin with {HEADER} on a line of its own")
    found = [_with_version(row) for row in rows.to_dict("records")]
    after, notes = [head], []
    for row, block in zip(parsed, blocks, strict=True):
        try:
            changed, note = _revised(row, block, _seen(row, found))
        except (KeyError, InvalidSpecifier) as error:
            raise BadInput(f"{path} has a row that is not valid: {error}") from error
        after.append(changed)
        notes += note
    text = "".join(after).rstrip("\n") + "\n"
    added = "".join(f"\n{block}" for block in _added(found))
    return Proposal(before, text + added, tuple(notes))


def _with_version(row: Mapping[Any, Any]) -> dict[str, Any]:
    version = Version(str(row["tensorflow"]))
    return {**row, "version": f"{version.major}.{version.minor}"}


def _seen(row: Mapping[str, Any], found: Iterable[Mapping[str, Any]]) -> _Seen:
    """Return on which versions the row was confirmed, and on which its tests passed."""
    seen = _Seen()
    covered = SpecifierSet(row.get("tensorflow", ""), prereleases=True)
    for verdict in found:
        reason = str(verdict["reason"])
        if not _is_about(row, verdict) or not reason.endswith(row["reason"]):
            continue
        if verdict["tensorflow"] not in covered:
            continue
        if verdict["verdict"] == verdicts.UNEXPECTED_PASS and PASSES.match(reason):
            seen.passes.add(verdict["version"])
        elif verdict["verdict"] == row["status"]:
            seen.deviates.add(verdict["version"])
    return seen


def _is_about(row: Mapping[str, Any], verdict: Mapping[str, Any]) -> bool:
    name, _, case = labels.short_name(verdict["test"]).partition("[")
    if name == labels.REPRODUCTION_TEST:
        return bool(row.get("finding")) and case.startswith(f"{row['finding']}-")
    scenes = row.get("scene", "*").split("|")
    return (
        row["trainer"] in ("*", verdict["trainer"])
        and (row["test"] == "*" or name in row["test"].split("|"))
        and any(fnmatch(case, f"{scene}*") for scene in scenes)
    )


def _revised(row: Mapping[str, Any], block: str, seen: _Seen) -> tuple[str, list[str]]:
    """Return the text of the row without the versions on which its tests pass, and notes."""
    if not seen.passes or row.get("may_pass"):
        return block, []
    name = f"{row['trainer']}, {row['test']}"
    if both := seen.passes & seen.deviates:
        where = ", ".join(sorted(both, key=Version))
        return block, [f"{name}: passes and deviates on TensorFlow {where}; name the tests"]
    specifier = ",".join(filter(None, (row.get("tensorflow"), _without(seen))))
    stale = f"{name}: passes wherever it was run; remove the row if it holds on no other version"
    return _with_specifier(block, specifier), [] if seen.deviates else [stale]


def _without(seen: _Seen) -> str:
    passes, deviates = (sorted(each, key=Version) for each in (seen.passes, seen.deviates))
    if deviates and Version(passes[-1]) < Version(deviates[0]):
        return f">={deviates[0]}"
    if deviates and Version(deviates[-1]) < Version(passes[0]):
        return f"<{passes[0]}"
    return ",".join(f"!={minor}.*" for minor in passes)


def _with_specifier(block: str, specifier: str) -> str:
    line = f"tensorflow = {json.dumps(specifier)}\n"
    changed, count = re.subn(r"^tensorflow = .*\n", lambda _: line, block, flags=re.MULTILINE)
    if count:
        return changed
    lines = block.splitlines(keepends=True)
    keys = [text.split("=")[0].strip() for text in lines]
    place = max(keys.index(key) for key in BEFORE if key in keys)
    return "".join([*lines[: place + 1], line, *lines[place + 1 :]])


def _added(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for each trainer and message with which tests failed on some versions."""
    versions = sorted({verdict["version"] for verdict in found}, key=Version)
    failed: dict[tuple[str, str, str], tuple[set[str], dict[str, None]]] = {}
    for verdict in found:
        if verdict["verdict"] != verdicts.FAILED or not verdict["trainer"]:
            continue
        reason = str(verdict["reason"])
        status = verdicts.UNSUPPORTED if WITHOUT_ROW in reason else verdicts.KNOWN_DEVIATION
        key = (verdict["trainer"], status, _pattern(BEFORE_MESSAGE.sub("", reason)))
        minors, tests = failed.setdefault(key, (set(), {}))
        minors.add(verdict["version"])
        tests[labels.short_name(verdict["test"]).partition("[")[0]] = None
    for (trainer, status, message), (minors, tests) in failed.items():
        values = {"trainer": trainer, "test": "|".join(tests)}
        if specifier := _only(minors, versions):
            values["tensorflow"] = specifier
        values |= {"status": status, "reason": "", "message": message, "url": ""}
        lines = [f"{key} = {_quoted(value)}" for key, value in values.items()]
        yield "\n".join([HEADER, *lines]) + "\n"


def _quoted(value: str) -> str:
    """Return a TOML string; a literal one, without escapes, if it can be."""
    literal = "\\" in value and "'" not in value
    return f"'{value}'" if literal else json.dumps(value, ensure_ascii=False)


def _pattern(message: str) -> str:
    """Return a regular expression for the message, with any numbers in place of its own."""
    start = one_line(message)[:MAX_MESSAGE_CHARS]
    return re.sub(r"\d+", lambda _: r"\d+", re.escape(start).replace(r"\ ", " "))


def _only(minors: set[str], versions: Sequence[str]) -> str:
    """Return the shortest specifier of these versions among those that were run."""
    if len(versions) == 1:
        return f"=={versions[0]}.*"
    places = sorted(versions.index(minor) for minor in minors)
    first, last = places[0], places[-1]
    if places != list(range(first, last + 1)):
        return ",".join(f"!={minor}.*" for minor in versions if minor not in minors)
    since = [f">={versions[first]}"] if first else []
    until = [f"<{versions[last + 1]}"] if last + 1 < len(versions) else []
    return ",".join(since + until)
