"""Interleaved measurement of two sides: ratio of their step times, and the answer.

Rows of `paired_step_time_s` come from `pytest suite/benchmarks/test_paired.py --base WHAT`: the
k-th turn of the base in a pair of processes is next to the k-th turn of the new side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from reports.core.grouping import backends, grouped, whole
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.core.verdicts import PASSED
from reports.rundir.frame import BadInput, RunFrames
from reports.stats import counts, ratio_tests
from reports.stats.counts import COUNTS, PER_COLLECTIVE, Difference
from reports.stats.ratio_tests import Answer, Effect

TIME = "paired_step_time_s"
START_UP = "paired_start_up_s"
TIMED = "paired_timed_s"
NOISE = {"paired_steal_share": 0.02, "paired_foreign_share": 0.05}  # metric -> limit of a pair
CONTROL = "paired_control_ratio"  # step times of two processes of the base, by pair
# metric of a side -> number of a step that does not depend on time
PAIRED_COUNTS = {f"paired_{name}": name for name in COUNTS}
METRICS = (TIME, START_UP, TIMED, CONTROL, *NOISE, *PAIRED_COUNTS, f"paired_{PER_COLLECTIVE}")
SIDES = ("base", "new")
COLUMNS = (
    Column("pairs", right=True),
    Column("timed s", right=True),
    Column("ended by"),
    Column("step ms"),
    Column("new / base (95 %)"),
    Column("answer"),
    Column("startup s", right=True),
    Column("noisy pairs", right=True),
    Column("control", right=True),
)
NOTE = (
    'timed: seconds of timed steps on each side, over all pairs. ended by: "enough" if the pairs '
    'agreed, "budget" if the time budget was used up. step: base → new, medians over turns. '
    "new / base: ratio of step times, where a value above 1 is slower, with its 95 % confidence "
    "interval (hierarchical bootstrap over pairs of processes and turns). A change counts if it is "
    f"at least {100 * ratio_tests.FLOOR:.0f} %, its interval excludes 1, and the chance of any "
    "false alarm among all comparisons is below 5 %. Fewer than "
    f"{ratio_tests.LEAST_PAIRS} pairs give no answer. startup: seconds until both sides are warm, "
    "which start at the same time. noisy pairs: pairs in which the hypervisor took more than 2 % "
    "of the CPU time (steal) or other processes used more than 5 %. control: ratio of two "
    "processes of the base (--control), 1 on a quiet day."
)


@dataclass(frozen=True)
class Series:
    """One comparison; `labels` of both sides name their differences; times are in seconds."""

    test: str
    name: str  # approach and backend of the new side
    labels: Mapping[str, str]
    workers: str
    log_ratios: Sequence[np.ndarray]  # of each pair of processes
    step_s: Mapping[str, float]
    timed_s: float  # of each side, in all pairs
    start_up_s: float
    noisy: int
    control: Sequence[float] = ()  # ratios of the base to itself, of each pair of processes
    differing: frozenset[str] = frozenset()  # names of DESCRIPTIONS in which the sides differ
    # number of a step -> side -> its value in each pair of processes; only those of both sides
    counts: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    @property
    def ended(self) -> str:
        """Return "enough" if the pairs agreed, or "budget" if the time budget was spent."""
        return "enough" if ratio_tests.enough(self.log_ratios) else "budget"

    @cached_property
    def effect(self) -> Effect:
        return ratio_tests.paired(self.log_ratios)

    def differences(self, comparisons: int) -> dict[str, Difference]:
        """Return the answer for each number of a step, corrected for the number of comparisons."""
        found = {}
        for name, values in self.counts.items():
            count = COUNTS[name]
            one = counts.judge(count, values["base"], values["new"], comparisons)
            found[name] = counts.expected(count, one, self.differing)
        return found


def ended_well(measurements: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements of tests that passed; pairs of a broken comparison are discarded."""
    failures = verdicts.loc[verdicts["verdict"] != PASSED]
    names = set(zip(failures["run_id"], failures["test"], strict=True))
    tests = zip(measurements["run_id"], measurements["test"], strict=True)
    return measurements.loc[[test not in names for test in tests]]


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin(METRICS)]


def series(measurements: pd.DataFrame) -> list[Series]:
    """Return every comparison in the order of the tests; raise BadInput for turns without pairs."""
    return [_series(str(key["test"]), turns) for key, turns in grouped(rows(measurements), KEYS)]


def merged(parts: Sequence[Series]) -> Series:
    """Return several measurements of one comparison as one; each pair of processes counts once."""
    return replace(
        parts[-1],
        log_ratios=[ratios for part in parts for ratios in part.log_ratios],
        step_s={side: median(part.step_s[side] for part in parts) for side in SIDES},
        timed_s=sum(part.timed_s for part in parts),
        start_up_s=_median([part.start_up_s for part in parts]),
        noisy=sum(part.noisy for part in parts),
        control=[ratio for part in parts for ratio in part.control],
        counts={
            name: {
                side: [v for part in parts for v in part.counts.get(name, {}).get(side, ())]
                for side in SIDES
            }
            for name in parts[-1].counts
        },
    )


KEYS = ("run_id", "test")


def _series(test: str, turns: pd.DataFrame) -> Series:
    timed = turns.loc[turns["metric"] == TIME]
    sides = {side: timed.loc[timed["variant"] == side] for side in SIDES}
    pairs = log_ratios(test, timed)
    noisy = set()
    for metric, most in NOISE.items():
        shares = turns.loc[(turns["metric"] == metric) & (turns["value"] > most)]
        noisy |= set(shares["repeat"])
    return Series(
        test=test,
        name=_name(sides["new"].iloc[0]),
        labels=_labels(sides),
        workers=whole(sides["new"]["workers"].iloc[0]),
        log_ratios=pairs,
        step_s={side: float(side_rows["value"].median()) for side, side_rows in sides.items()},
        timed_s=float(turns.loc[turns["metric"] == TIMED, "value"].sum()),
        start_up_s=_median(turns.loc[turns["metric"] == START_UP, "value"]),
        noisy=len(noisy),
        control=list(turns.loc[turns["metric"] == CONTROL, "value"]),
        differing=frozenset(descriptions(sides)),
        counts=_counts(turns),
    )


def _counts(turns: pd.DataFrame) -> dict[str, dict[str, list[float]]]:
    found = {}
    for metric, name in PAIRED_COUNTS.items():
        own = turns.loc[turns["metric"] == metric]
        values = {side: list(own.loc[own["variant"] == side, "value"]) for side in SIDES}
        if all(values.values()):
            found[name] = values
    return found


def log_ratios(name: str, timed: pd.DataFrame) -> list[np.ndarray]:
    """Return the log ratios (new to base) of the turns of each pair of processes, in order.

    `timed`: rows of TIME of one comparison; `name`: its name in errors. Raise BadInput if a turn
    has an unknown side, takes no time, or the turns are not in pairs.
    """
    wrong = timed.loc[~timed["variant"].isin(SIDES) | ~(timed["value"] > 0)]
    for _, row in wrong.iterrows():
        problem = f"variant {row['variant']!r} and value {row['value']:g}"
        raise BadInput(
            f"{name}: a turn has {problem}; expected variant base or new and a value above 0 s"
        )
    logs = {side: dict(_turns(timed.loc[timed["variant"] == side])) for side in SIDES}
    lengths = [{pair: len(turns) for pair, turns in by_pair.items()} for by_pair in logs.values()]
    if not lengths[0] or lengths[0] != lengths[1]:
        raise BadInput(f"{name}: the turns of base and new are not paired")
    return [logs["new"][pair] - base for pair, base in sorted(logs["base"].items())]


def _median(values: Sequence[float]) -> float:
    return median(values) if len(values) else float("nan")


def _turns(side: pd.DataFrame) -> Iterator[tuple[int, np.ndarray]]:
    for repeat, turns in side.groupby("repeat", sort=True):
        yield int(repeat), np.log(turns["value"].to_numpy(float))  # type: ignore[call-overload]


DESCRIPTIONS: Mapping[str, Callable[[Any], str]] = {
    "trainer": lambda row: str(row["trainer"]),
    "workers": lambda row: plural(int(row["workers"]), "worker"),
    "backend": lambda row: backends(row["backend"], row["collective"]) or "none",
    "keras": lambda row: str(row["keras"]),
    "tensorflow": lambda row: f"TensorFlow {row['tensorflow']}",
    "python": lambda row: f"Python {row['python']}",
    "injected": lambda row: str(row["fault"]) or "unmodified",
}


def descriptions(sides: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, str]]:
    """Return the text of each side, by name of what they differ in."""
    first = {side: turns.iloc[0] for side, turns in sides.items()}
    texts = {
        name: {side: describe(row) for side, row in first.items()}
        for name, describe in DESCRIPTIONS.items()
    }
    return {name: found for name, found in texts.items() if len(set(found.values())) > 1}


def _labels(sides: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Label each side by its differences from the other; "identical" if there are none."""
    found = descriptions(sides).values()
    return {side: ", ".join(texts[side] for texts in found) or "identical" for side in sides}


def answers_of(comparisons: Sequence[Series]) -> list[Answer]:
    """Return the answer of each comparison, corrected for the number of comparisons."""
    return [
        ratio_tests.judge(
            comparison.effect, "lower", len(comparisons), least=ratio_tests.LEAST_PAIRS
        )
        for comparison in comparisons
    ]


def differences_of(comparisons: Sequence[Series]) -> list[dict[str, Difference]]:
    """Return the answers for the numbers of a step of each comparison, corrected for all."""
    number = sum(len(comparison.counts) for comparison in comparisons)
    return [comparison.differences(number) for comparison in comparisons]


def counts_table(
    comparisons: Sequence[Series], differences: Sequence[Mapping[str, Difference]]
) -> Table:
    """Return a line for each number of a step that differs; numbers without a change have none."""
    lines = [
        Row(heading(comparison), counts.cells(name, found))
        for comparison, own in zip(comparisons, differences, strict=True)
        for name, found in own.items()
        if found.answer is not Answer.NO_CHANGE
    ]
    return Table("Numbers of a step", counts.COLUMNS, tuple(lines), counts.NOTE if lines else "")


def ratio(effect: Effect) -> str:
    """Return `1.052 (1.049 to 1.056)`."""
    if not effect.known:
        return f"{effect.ratio:.3f} ({MISSING})"
    return f"{effect.ratio:.3f} ({effect.low:.3f} to {effect.high:.3f})"


def heading(comparison: Series) -> str:
    """Return `keras_mirrored · tf_keras 2.21.0, 1 worker: Python 3.11.7 → Python 3.12.1`."""
    sides = [comparison.labels[side] for side in SIDES]
    change = "identical" if sides[0] == sides[1] else " → ".join(sides)
    return f"{comparison.name}, {plural(int(comparison.workers), 'worker')}: {change}"


def table(comparisons: Sequence[Series], answers: Sequence[Answer]) -> Table:
    """Return a line for each comparison; no rows if nothing was compared."""
    lines = []
    for comparison, answer in zip(comparisons, answers, strict=True):
        cells = (
            str(len(comparison.log_ratios)),
            figure(comparison.timed_s) if comparison.timed_s else MISSING,
            comparison.ended,
            " → ".join(figure(1000 * comparison.step_s[side]) for side in SIDES),
            ratio(comparison.effect),
            answer.value,
            figure(comparison.start_up_s),
            str(comparison.noisy),
            f"{np.exp(np.mean(np.log(comparison.control))):.3f}" if comparison.control else "",
        )
        lines.append(Row(heading(comparison), cells))
    note = NOTE if lines else "Nothing was compared."
    return Table("Paired comparisons", COLUMNS, tuple(lines), note).without_empty_columns()


def of_run(run: RunFrames) -> list[Table]:
    """Return the comparisons of one run, judged without those of other runs."""
    comparisons = series(ended_well(run.measurements, run.verdicts))
    return tables(comparisons, answers_of(comparisons), differences_of(comparisons))


def tables(
    comparisons: Sequence[Series],
    answers: Sequence[Answer],
    differences: Sequence[Mapping[str, Difference]],
) -> list[Table]:
    """Return the step times, and the numbers of a step if there are some that differ."""
    counted = counts_table(comparisons, differences)
    return [table(comparisons, answers), *([counted] if counted.rows else [])]


def _name(row: Any) -> str:
    name = approach(row["trainer"], row["keras"])
    backend = backends(row["backend"], row["collective"])
    return f"{name}, {backend}" if backend else name
