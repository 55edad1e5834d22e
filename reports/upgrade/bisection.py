"""`python -m reports bisect`: find the first release on which a test fails or a step is slower.

Both ends are examined first. Then releases between them are halved. A release that cannot be
installed or examined is left out. At last, packages that came with the first bad release are tried
with the last good one, one at a time: the cause is one of them, or the release itself.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from reports.ab import command as ab
from reports.ab import pairs, suite_run
from reports.cli_options import Option, formats, percent
from reports.core.table import Column, Row, Table
from reports.core.text import one_line
from reports.core.verdicts import BY_NAME, PASSED
from reports.render import markdown
from reports.rundir import writer as store
from reports.rundir.frame import BadInput
from reports.upgrade import environments, measure, sides
from reports.upgrade.measure import LOOK_S, LOOKS
from reports.upgrade.sides import Side

# Packages whose version changes with TensorFlow's and that take part in training.
DEPENDENCIES = ("keras", "tf-keras", "numpy", "protobuf", "grpcio")
COLUMNS = (Column("packages"), Column("result"), Column("reason"), Column("run"))
GOOD, BAD, UNKNOWN = "good", "bad", "not examined"
OPTIONS: tuple[Option, ...] = (
    (
        ("--good",),
        {"metavar": "SIDE", "help": "where it works: a requirement, such as tensorflow==2.15.*"},
    ),
    (("--bad",), {"metavar": "SIDE", "help": "where it does not: another version of the same"}),
    (("--test",), {"metavar": "NODEID", "help": "a test of the suite that passes only on good"}),
    (
        ("--series",),
        {
            "metavar": "NAME",
            "help": "or a comparison of step times, as in the brackets of its test: "
            "keras_mirrored-tf_keras",
        },
    ),
    (
        ("--worse",),
        {
            "type": percent(1000),
            "default": 0.1,
            "metavar": "PERCENT",
            "help": "how much slower the series is on bad (default: 10)",
        },
    ),
    *(option for option in ab.OPTIONS if option[0][0] in ("--trainer", *measure.COMMON, "--seed")),
    (
        ("--run-dir",),
        {"type": Path, "metavar": "DIR", "help": "default: reports/runs/bisect-<time>"},
    ),
    formats("text", "md"),
)


@dataclass(frozen=True)
class Trial:
    """One environment that was examined, or could not be. `why`: of the result, in one line."""

    packages: str
    result: str  # GOOD, BAD or UNKNOWN
    why: str
    run: str = ""


@dataclass
class Search:
    """The releases of one package, and what was found on each that was tried.

    `versions`: from good to bad, both included. `examine`: returns the result on a version.
    """

    versions: Sequence[str]
    examine: Callable[[str], Trial]
    trials: dict[str, Trial] = field(default_factory=dict)

    def run(self) -> None:
        """Halve the releases until no examined one is left between good and bad."""
        while (version := self.next()) is not None:
            self.trials[version] = self.examine(version)

    def next(self) -> str | None:
        """Return the release to try next: the one in the middle that was not tried."""
        low, high = self.place(GOOD), self.place(BAD)
        untried = [i for i in range(low + 1, high) if self.versions[i] not in self.trials]
        if not untried:
            return None
        return self.versions[min(untried, key=lambda i: (abs(2 * i - low - high), i))]

    def place(self, result: str) -> int:
        """Return the place of the last good release, or of the first bad one."""
        places = [
            i
            for i, version in enumerate(self.versions)
            if version in self.trials and self.trials[version].result == result
        ]
        return max(places) if result == GOOD else min(places)

    def left_out(self) -> list[str]:
        """Return the releases between good and bad that could not be examined."""
        return list(self.versions[self.place(GOOD) + 1 : self.place(BAD)])


@dataclass(frozen=True)
class Result:
    """The outcome: the trials in order, and what they say."""

    trials: Sequence[Trial]
    headline: str
    is_exact: bool = True  # False if releases next to the first bad one could not be examined

    def table(self) -> Table:
        """Return a row for each trial."""
        rows = [Row("", (t.packages, t.result, one_line(t.why), t.run)) for t in self.trials]
        return Table("Trials", COLUMNS, tuple(rows), f"{self.headline}.")

    def markdown(self) -> str:
        """Return the outcome as Markdown, which ends with a line end."""
        table = replace(self.table(), note="")
        return f"## {markdown.escape(self.headline)}\n\n{markdown.one_table(table)}"


class Bisection:
    """One search, with the runs below a directory."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options, self.directory = options, directory
        self.good, self.bad = (sides.read(name, getattr(options, name)) for name in (GOOD, BAD))
        self.package = _package(self.good, self.bad)
        self.count = 0
        self.good_python = ""
        self.last = ""  # the interpreter of the last trial
        self.trials: list[Trial] = []
        self.installed: dict[str, Mapping[str, str]] = {}  # all packages, by the package's version

    def result(self) -> Result:
        """Search, and return what was found; raise BadInput if an end is not as it should be."""
        found = {}
        for side in (self.good, self.bad):
            python = self._python(side)
            found[side.name] = _installed(python)
            if side is self.good:
                self.good_python = python
        ends = {name: versions[self.package] for name, versions in found.items()}
        if Version(ends[GOOD]) >= Version(ends[BAD]):
            raise BadInput(f"--good is {self.package} {ends[GOOD]}, not older than {ends[BAD]}")
        search = Search(
            between(_released(self.good_python, self.package), ends[GOOD], ends[BAD]),
            lambda version: self._trial(self.side_of(version)),
        )
        for name, side in ((GOOD, self.good), (BAD, self.bad)):
            trial = self._trial(side)
            if trial.result != name:
                raise BadInput(f"--{name} {side.text}: {trial.result} there: {trial.why}")
            search.trials[ends[name]] = trial
        search.run()
        last, first = (search.versions[search.place(name)] for name in (GOOD, BAD))
        headline = f"{self._what()}: good on {self.package} {last}, bad on {first}"
        if search.left_out():
            others = ", ".join(search.left_out())
            headline += f"; not examined between them: {others}"
            return Result(self.trials, headline, is_exact=False)
        return Result(self.trials, f"{headline}: {self._cause(last, first)}")

    def side_of(self, version: str) -> Side:
        """Return the good side with another version of the package, and of those that follow it.

        A package follows if its version has the same beginning as the package's on both ends, as
        tf_keras follows TensorFlow.
        """
        side, minor = self.good, ".".join(version.split(".")[:2])
        for text in self.good.requirements:
            name = _name_of(text)
            if name == self.package:
                side = with_package(side, name, version)
            elif text not in self.bad.requirements:
                side = with_package(side, name, f"{minor}.*")
        return replace(side, name="release")

    def _cause(self, last: str, first: str) -> str:
        """Return which package that came with the first bad release is the cause."""
        good, bad = self.side_of(last), self.side_of(first)
        before, after = self.installed[last], self.installed[first]
        unknown = []
        for name in DEPENDENCIES:
            was, now = before.get(name), after.get(name)
            if name == self.package or not was or not now or was == now:
                continue
            forward = self._trial(with_package(good, name, now)).result
            if forward == BAD:
                return f"{name} {was} → {now} alone is enough"
            if forward == UNKNOWN:  # the older release may refuse the newer package
                back = self._trial(with_package(bad, name, was)).result
                if back == GOOD:
                    return f"{name} {was} → {now}, since {first} is good with {was}"
                if back == UNKNOWN:
                    unknown.append(name)
        tried = f", or {' or '.join(unknown)}, which cannot be exchanged" if unknown else ""
        return f"the cause is {self.package} itself{tried}"

    def _trial(self, side: Side) -> Trial:
        """Examine one environment; what cannot be installed or run is UNKNOWN."""
        packages = " ".join(side.requirements)
        try:
            trial = self._examined(side, packages)
        except environments.NotInstalled as error:
            trial = Trial(packages, UNKNOWN, f"cannot be installed: {error.reason}")
        except BadInput as error:
            trial = Trial(packages, UNKNOWN, str(error))
        self.trials.append(trial)
        return trial

    def _examined(self, side: Side, packages: str) -> Trial:
        python = self._python(side)
        installed = _installed(python)
        self.installed[installed[self.package]] = installed
        if self.options.test:
            return self._tested(side, python, packages, on_side(self.options.test, installed))
        return self._timed(side, python, packages, on_side(f"[1-{self.options.series}]", installed))

    def _tested(self, side: Side, python: str, packages: str, test: str) -> Trial:
        name = self._name()
        arguments = ["--python", python, *self._common()]
        arguments += [word for pair in side.options for word in pair]
        run = suite_run.run([str(ab.ROOT / test)], arguments, self.directory / name, side.variables)
        verdicts = run.verdicts.to_dict("records")
        if not verdicts:
            reasons = [one["reason"] for one in run.info.get("not_examined", ())]
            why = reasons[0] if reasons else "no such test on this side"
            return Trial(packages, UNKNOWN, why, name)
        worst = max(verdicts, key=lambda row: row["verdict"] != PASSED)
        words = BY_NAME[worst["verdict"]].words
        why = f"{words}: {worst['reason']}" if worst["reason"] else words
        is_good = worst["verdict"] == PASSED
        if worst["verdict"] == "harness_error":
            return Trial(packages, UNKNOWN, why, name)
        return Trial(packages, GOOD if is_good else BAD, why, name)

    def _timed(self, side: Side, python: str, packages: str, series: str) -> Trial:
        """Compare step times with those of good; more looks as long as the interval is too wide."""
        test = f"{ab.TEST}::test_paired{series}"
        looks: list[pairs.Series] = []
        names: list[str] = []
        why = ""
        limit = 1 + self.options.worse / 2
        base = "same" if python == self.good_python else self.good_python
        both = ["--base", base, "--python" if base == "same" else "--new", python]
        both += [word for pair in side.options for word in pair]
        for option, own in (("--base-env", self.good), ("--new-env", side)):
            both += [word for text in own.variables for word in (option, text)]
        while len(looks) < LOOKS:
            names.append(self._name())
            words = [*both, *self._common(), "--budget", f"{LOOK_S:g}"]
            outcome = ab.of([suite_run.run([test], words, self.directory / names[-1])])
            if outcome.broken:
                return Trial(packages, UNKNOWN, outcome.broken[0].reason, names[-1])
            looks += outcome.series
            effect = pairs.merged(looks).effect
            why = f"step time {pairs.ratio(effect)} times that of good"
            if effect.known and (effect.low > limit or effect.high < limit):
                return Trial(packages, BAD if effect.low > limit else GOOD, why, names[-1])
        return Trial(packages, UNKNOWN, f"{why}, too noisy", names[-1])

    def _common(self) -> list[str]:
        return ab.given(self.options, ("--trainer", *measure.COMMON, "--seed"))

    def _python(self, side: Side) -> str:
        """Return the side's interpreter; an environment takes gigabytes, so one trial's is kept."""
        if side.name in (GOOD, BAD):
            return environments.python_of(side, environments.cache())
        python = environments.python_of(side, self.directory / "environments")
        if self.last not in ("", python):
            environments.remove(self.last)
        self.last = python
        return python

    def _name(self) -> str:
        self.count += 1
        return f"trial-{self.count:03}"

    def _what(self) -> str:
        if self.options.test:
            return self.options.test
        return f"{self.options.series} slower by {100 * self.options.worse:g} %"


def _package(good: Side, bad: Side) -> str:
    """Return the package whose releases lie between the sides; raise BadInput if there is none."""
    for side in (good, bad):
        for text in side.requirements:
            if text.endswith(".whl"):
                raise BadInput(f"--{side.name}: {text}: a wheel is no release; name a requirement")
    others = [(side.variables, side.commit, side.interpreter) for side in (good, bad)]
    if others[0] != others[1] or good.commit:
        raise BadInput("--good and --bad may differ in requirements and options only")
    names = [[_name_of(text) for text in side.requirements] for side in (good, bad)]
    changed = [
        name
        for name, text in zip(names[0], good.requirements, strict=True)
        if name in names[1] and text not in bad.requirements
    ]
    if not changed:
        raise BadInput("--good and --bad: name two versions of the same package")
    return next((name for name in changed if name.startswith("tensorflow")), changed[0])


def on_side(test: str, installed: Mapping[str, str]) -> str:
    """Return the test id with the name that Keras 2 has there: keras2, or tf_keras as a package."""
    own, other = ("tf_keras", "keras2") if "tf-keras" in installed else ("keras2", "tf_keras")
    return re.sub(rf"(?<=[\[-]){other}(?=[\]-])", own, test)


def with_package(side: Side, name: str, version: str) -> Side:
    """Return the side with this version of a package (`2.21.0`, `2.21.*`) and all its others."""
    own = [text for text in side.requirements if _name_of(text) == name]
    extras = ",".join(sorted(Requirement(own[0]).extras)) if own else ""
    text = f"{name}[{extras}]=={version}" if extras else f"{name}=={version}"
    listed = tuple(sorted([*(r for r in side.requirements if r not in own), text]))
    return replace(side, text=" ".join(listed), requirements=listed)


def _name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def between(released: Sequence[str], good: str, bad: str) -> list[str]:
    """Return the releases from good to bad, both included, in order; pre-releases are left out."""
    low, high = Version(good), Version(bad)
    inner = [
        text for text in released if low < Version(text) < high and not Version(text).is_prerelease
    ]
    return [good, *sorted(inner, key=Version), bad]


def _released(python: str, package: str) -> list[str]:
    """Return the releases of a package that this interpreter can install."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("Available versions:"):
            return [text.strip() for text in line.partition(":")[2].split(",")]
    lines = done.stderr.strip().splitlines() or ["no answer"]
    raise BadInput(f"the releases of {package} cannot be listed: {one_line(lines[-1])}")


def _installed(python: str) -> Mapping[str, str]:
    """Return the versions of all packages of an environment, by normalized name."""
    code = (
        "import json, importlib.metadata as m\n"
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    )
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    return {canonicalize_name(name): text for name, text in json.loads(done.stdout).items() if name}


def result(options: argparse.Namespace) -> Result:
    """Bisect as the options say; raise BadInput if they contradict each other."""
    for name in (GOOD, BAD):
        if not getattr(options, name):
            raise BadInput(f"--{name}: name a side, such as --{name} tensorflow==2.21.*")
    if bool(options.test) is bool(options.series):
        raise BadInput("give --test NODEID or --series NAME")
    if options.test and not (ab.ROOT / options.test.split("::")[0]).exists():
        raise BadInput(f"--test {options.test}: there is no {options.test.split('::')[0]}")
    directory: Path = options.run_dir or ab.new_directory("bisect")
    with suite_run.stoppable():
        try:
            found = Bisection(options, directory).result()
        except suite_run.Stopped as error:
            raise BadInput(f"{error}; the runs are in {directory}") from error
        finally:
            shutil.rmtree(directory / "environments", ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    store.write_file(directory / "bisect.md", found.markdown())
    print(directory / "bisect.md", file=sys.stderr)
    return found
