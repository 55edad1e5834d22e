"""Check sharding: which examples each worker sees, read from the audited input of every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise

import numpy as np

from suite.harness.checks.assertions import check, flag_value, require, some
from suite.harness.core.history import Event, Run

SHOWN = 5  # most examples named in a message


def examples_in(run: Run) -> int:
    """Return the number of training examples: as requested, or as the run's data file has."""
    if "examples" in run.flags:
        return int(run.flags["examples"])
    with np.load(flag_value(run, "data")) as data:
        return len(data["y_train"])


@check
def each_example_once(run: Run) -> None:
    """Require that, in every pass over the data, one worker sees each example exactly once."""
    for task in run.workers:
        some(f"audited step of {task}", run.of("input", task))
    _exactly_once("all workers together", run.of("input"), examples_in(run))


@check
def every_worker_sees_all(run: Run) -> None:
    """Require that, without sharding, each worker sees all examples once in each own pass."""
    for task in run.workers:
        _exactly_once(task, _inputs(run, task), examples_in(run))


@check
def own_share_in_every_pass(run: Run) -> None:
    """Require that each of N workers sees the same one Nth of the examples in all passes."""
    seen = {
        task: {i for e in some(f"audited step of {task}", run.of("input", task)) for i in e["ids"]}
        for task in run.workers
    }
    examples = examples_in(run)
    for task, own in seen.items():
        share = len(own) * len(run.workers)
        require(
            share == examples,
            f"{task} has seen {len(own)} of {examples} examples, not one in {len(run.workers)}",
        )
    everything = set.union(*seen.values())
    missing = sorted(set(range(examples)) - everything)
    require(not missing, f"{len(missing)} examples are no worker's ({missing[:SHOWN]}...)")


@check
def workers_shuffle_differently(run: Run) -> None:
    """Require that no two workers see the same examples in the same step."""
    for step in {e["global_step"] for e in some("audited step", run.of("input"))}:
        batches = [e for e in run.of("input") if e["global_step"] == step]
        alike = [
            (a.task, b.task)
            for a, b in combinations(batches, 2)
            if sorted(a["ids"]) == sorted(b["ids"])
        ]
        require(not alike, f"the same batch in step {step}: {alike}")


@check
def each_pass_has_its_own_order(run: Run) -> None:
    """Require that no pass over the data has the order of the pass before."""
    passes = list(_passes(run.of("input"), examples_in(run)))
    require(len(passes) > 1, f"{len(passes)} passes over the data cannot differ")
    for number, (before, after) in enumerate(pairwise(passes), 2):
        require(
            before != after, f"pass {number} has the order of the pass before: {after[:SHOWN]}..."
        )


@check
def workers_have_their_own_batches(run: Run) -> None:
    """Require that no two workers train on the same batch, with its examples in the same order."""
    batches = {task: _batches(_inputs(run, task)) for task in run.workers}
    for one, other in combinations(batches, 2):
        _none_in_common(one, batches[one], other, batches[other])


@check
def second_run_has_new_batches(run: Run, then: Run) -> None:
    """Require that a run that goes on trains on no batch of the run before it."""
    first, second = (_batches(each.of("input")) for each in (run, then))
    _none_in_common("the first run", first, "the second run", second)


def _inputs(run: Run, task: str) -> list[Event]:
    """Return the audited steps of a worker; a coordinator reports those of its workers."""
    return [e for e in run.of("input") if e.get("worker", e.task) == task]


def _batches(inputs: Iterable[Event]) -> set[tuple[int, ...]]:
    return {tuple(e["ids"]) for e in inputs}


def _none_in_common(
    one: str, first: set[tuple[int, ...]], other: str, second: set[tuple[int, ...]]
) -> None:
    for who, batches in ((one, first), (other, second)):
        require(batches, f"there is no audited step of {who}")
    common = [list(batch[:SHOWN]) for batch in sorted(first & second)]
    require(
        not common,
        f"{one} and {other} train on the same batches, {len(common)} of {len(first)} and "
        f"{len(second)}; one begins with {common and common[0]}",
    )


def _exactly_once(who: str, inputs: Iterable[Event], examples: int) -> None:
    passes = list(_passes(inputs, examples))
    require(passes, f"{who}: fewer examples than one pass over {examples}")
    for number, seen in enumerate(passes, 1):
        counts = Counter(seen)
        missing = sorted(set(range(examples)) - set(counts))
        repeated = sorted(i for i, n in counts.items() if n > 1)
        require(
            not missing and not repeated,
            f"{who}, pass {number} over {examples} examples: {len(missing)} never seen "
            f"({missing[:SHOWN]}...), {len(repeated)} more than once ({repeated[:SHOWN]}...)",
        )


def _passes(inputs: Iterable[Event], examples: int) -> Iterator[list[int]]:
    """Yield example ids in the order of global steps, one list for each complete pass.

    Within a step, the workers' parts of the global batch are in the order of the workers' names. An
    incomplete last pass is omitted.
    """
    ordered = sorted(inputs, key=lambda e: (e["global_step"], len(e.task), e.task))
    ids = [i for event in ordered for i in event["ids"]]
    for first in range(0, len(ids) - examples + 1, examples):
        yield ids[first : first + examples]
