"""What an upgrade changes: the answers for tests, step times and numbers of a step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from reports.ab import pairs
from reports.compare import gate, run_groups
from reports.core import labels
from reports.core.grouping import backends, whole
from reports.core.text import plural
from reports.core.verdicts import PASSED
from reports.rundir.frame import RunFrames
from reports.stats.counts import Difference
from reports.stats.ratio_tests import CHANGED, Answer
from reports.upgrade.measure import LOOKS, SIDES, Measured


@dataclass(frozen=True)
class Counted:
    """A number of a step of one approach, and how the sides differ in it."""

    name: str
    metric: str
    difference: Difference


@dataclass(frozen=True)
class Findings:
    """Everything that was found, with the answers."""

    measured: Measured

    @cached_property
    def _sides(self) -> Sequence[run_groups.Side]:
        """Return the runs of verdicts as sides of a comparison; () if a side has none."""
        return [run_groups.combine([run], self.flavors) for run in self._runs]

    @property
    def _runs(self) -> Sequence[RunFrames]:
        """Return the runs of verdicts; () if a side has none."""
        runs = self.measured.runs
        return [runs[side] for side in SIDES] if set(runs) == set(SIDES) else ()

    @cached_property
    def flavors(self) -> Mapping[str, str]:
        """Return the Keras flavors that are compared under another name."""
        names = run_groups.FLAVORS
        return {**names, **{base: names.get(new, new) for base, new in self.other_keras.items()}}

    @cached_property
    def other_keras(self) -> Mapping[str, str]:
        """Return the flavor of the base with that of the new side, if each has one of its own.

        These are compared: an upgrade of TensorFlow brings the other Keras as well.
        """
        found = [run_groups.flavors_of(run) for run in self._runs]
        if [len(flavors) for flavors in found] != [1, 1]:
            return {}
        base, new = (flavors.pop() for flavors in found)
        names = run_groups.FLAVORS
        return {base: new} if names.get(base, base) != names.get(new, new) else {}

    @cached_property
    def comparison(self) -> gate.Comparison | None:
        """Return the comparison of the verdicts, or None if a side has none."""
        return gate.compare(*self._sides, numbers=False) if self._sides else None

    @cached_property
    def counts(self) -> Sequence[Counted]:
        """Return the numbers of a step.

        Those that are counted come from the runs of verdicts, which have all approaches; those with
        a spread from the pairs of processes.
        """
        found = []
        for one in gate.counted(*self._sides) if self._sides else ():
            base, new = float(one.base or 0), float(one.new or 0)
            difference = Difference(one.answer, base, new, math.nan, math.nan, one.reason)
            found.append(Counted(_name(one), str(one.key["metric"]), difference))
        comparisons = self.measured.comparisons.values()
        number = LOOKS * sum(len(one.counts) for one in comparisons)
        for one in comparisons:
            for metric, difference in one.differences(number).items():
                if not (self._sides and gate.exact_count(metric)):
                    found.append(Counted(heading(one), metric, difference))
        return found

    @cached_property
    def tests(self) -> Sequence[gate.TestAnswer]:
        """Return the answer of each test.

        Who upgrades loses what passed before, also where the expectations know that it does not
        pass there. So that is a regression here, and only here.
        """
        if self.comparison is None:
            return ()
        found = []
        for item, key in zip(self.comparison.tests, self.comparison.base.tests, strict=True):
            new = self.comparison.new.tests.get(key)
            base = self.comparison.base.tests[key]
            if item.answer is Answer.IMPROVEMENT:
                item = replace(item, reason=base.reason)
            elif new and base.verdicts == (PASSED,) and PASSED not in new.verdicts:
                item = replace(item, answer=Answer.REGRESSION, reason=new.reason)
            found.append(item)
        return found

    @cached_property
    def speeds(self) -> Mapping[str, Answer]:
        """Return the answer of each comparison of step times, by test."""
        return {test: self.measured.answer(test) for test in self.measured.comparisons}

    @property
    def broken(self) -> list[str]:
        """Return the comparisons of step times whose test failed."""
        return [test for test, one in self.measured.broken.items() if one.red]

    @cached_property
    def changed_counts(self) -> Sequence[Counted]:
        """Return the numbers of a step that are worse or better on the new side."""
        return [item for item in self.counts if item.difference.answer in CHANGED]

    @property
    def unseen(self) -> list[str]:
        """Return the comparisons of step times that got no look."""
        record = self.measured.record
        return [test for test in record.tests if test not in record.looks]

    def exit_code(self, strict: bool = False) -> int:
        """Return the exit code of the command.

        1: something stopped working or became slower. 2: nothing was compared. 3: with `strict`,
        an answer is "cannot tell", or something was not looked at. 0: otherwise.
        """
        answers = [*(item.answer for item in self.tests), *self.speeds.values()]
        answers += [item.difference.answer for item in self.changed_counts]
        if Answer.REGRESSION in answers or self.broken:
            return 1
        if not answers:
            return 2
        return 3 if strict and (Answer.CANNOT_TELL in answers or self.unseen) else 0

    def undecided(self) -> str:
        """Return how many step times are undecided, or "" if there are none."""
        count = [*self.speeds.values()].count(Answer.CANNOT_TELL) + len(self.unseen)
        return f"{plural(count, 'step time')} undecided" if count else ""

    def headline(self) -> str:
        """Return the answer in one line."""
        tests = Counter(item.answer for item in self.tests)
        speeds = Counter(self.speeds.values())
        worse, better = tests[Answer.REGRESSION], tests[Answer.IMPROVEMENT]
        slower, faster = speeds[Answer.REGRESSION], speeds[Answer.IMPROVEMENT]
        counted = Counter(item.difference.answer for item in self.changed_counts)
        grown, fallen = counted[Answer.REGRESSION], counted[Answer.IMPROVEMENT]
        parts = [
            f"{plural(worse, 'test')} stopped passing" if worse else "",
            f"{plural(slower, 'comparison')} slower" if slower else "",
            f"{plural(grown, 'number')} of a step increased" if grown else "",
            f"{plural(len(self.broken), 'comparison')} without a result" if self.broken else "",
            f"{plural(better, 'test')} {'passes' if better == 1 else 'pass'} now" if better else "",
            f"{plural(faster, 'comparison')} faster" if faster else "",
            f"{plural(fallen, 'number')} of a step decreased" if fallen else "",
        ]
        found = ", ".join(filter(None, parts))
        if not found:
            found = "nothing could be compared" if self.exit_code() == 2 else "no change was found"
        found += f"; {self.undecided()}" if self.undecided() else ""
        stopped = self.measured.record.stopped
        return f"{found} ({stopped})" if stopped else found


def heading(one: pairs.Series) -> str:
    """Return the name of a comparison; the page says elsewhere how two commits differ."""
    return pairs.heading(one).removesuffix(": identical")


def _name(one: gate.SeriesAnswer) -> str:
    """Return `keras_mirrored · tf_keras, auto → ring, 2 workers`."""
    key, workers = one.key, whole(one.key["workers"])
    parts = (
        labels.approach(key["trainer"], key["keras"]),
        backends(key["backend"], one.collectives[1]),
        plural(int(workers), "worker") if workers else "",
    )
    return ", ".join(filter(None, parts))
