"""Check the observer: what it sees from outside equals what the program reports by itself.

`run` was observed with its own reports off, `reference` reported the same work itself. What cannot
be seen from outside is left out: losses of batches, epochs of a loop of the program's own, and
evaluations there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite.harness.checks.assertions import check, close, equal, flag_value, require, some, weights
from suite.harness.checks.checkpoints import BACKUP
from suite.harness.core.history import Event, Run


def _hooks_work(run: Run) -> None:
    """Require that no hook has failed: otherwise events are missing."""
    for event in run.of("hook_failed"):
        require(False, f"hook {event['hook']} of {event.task} failed: {event['error']}")


def _relative(run: Run, event: Event) -> str:
    """Return the path of a save within the model directory, which differs between the runs."""
    return str(Path(event["path"]).relative_to(flag_value(run, "model-dir")))


def _sides_equal(what: str, run: Run, reference: Run, of: Callable[[Run, str], object]) -> None:
    """Require that `of(side, task)` is the same for both sides; `what` names it, with `{task}`."""
    _hooks_work(run)
    for task in run.drivers:
        equal(what.format(task=task), of(run, task), of(reference, task))


def _metrics_equal(what: str, found: dict[str, float], wanted: dict[str, float]) -> None:
    equal(f"names of {what}", sorted(found), sorted(wanted))
    for name, value in wanted.items():
        close(f"{name} of {what}", found[name], value, 1e-6)


@check
def observed_steps_equal(run: Run, reference: Run) -> None:
    """Require the same steps of each driver, in the same order, with the same global steps."""

    def steps(side: Run, task: str) -> list[tuple[int, int]]:
        return [
            (e["step"], e["global_step"]) for e in some(f"step of {task}", side.of("step", task))
        ]

    _sides_equal("(step, global step) of {task}", run, reference, steps)


@check
def observed_saves_equal(run: Run, reference: Run) -> None:
    """Require the same checkpoints, by path and global step, apart from backups of `fit`."""
    _hooks_work(run)
    for task in run.drivers:
        found = [
            (path, e["global_step"])
            for e in run.of("checkpoint_saved", task)
            if BACKUP not in Path(path := _relative(run, e)).parts
        ]
        saves = some(f"save of {task}", reference.of("checkpoint_saved", task))
        equal(
            f"(path, global step) of {task}'s saves",
            found,
            [(_relative(reference, e), e["global_step"]) for e in saves],
        )


@check
def observed_restores_equal(run: Run, reference: Run) -> None:
    """Require the same restores, with the same state after them."""

    def restores(side: Run, task: str) -> list[tuple[Any, ...]]:
        return [
            (_relative(side, e), e["global_step"], e["iterations"], e["digest"])
            for e in some(f"restore of {task}", side.of("restored", task))
        ]

    what = "(path, global step, iterations, digest) of {task}'s restores"
    _sides_equal(what, run, reference, restores)


@check
def observed_weights_equal(run: Run, reference: Run) -> None:
    """Require the same weights at the start and the end, and after each epoch that is seen."""
    _hooks_work(run)
    for task in run.drivers:
        for when in ("initial", "epoch", "final"):
            sides = []
            for side in (run, reference):
                events = weights(side, when, task)
                sides.append([(e["global_step"], e["digest"], e.get("copies")) for e in events])
            if when == "epoch" and not run.trainer.fit:
                continue
            some(f"{when} weights of {task}", sides[1])
            equal(f"(global step, digest, copies) of {task}'s {when} weights", *sides)


@check
def observed_slots_equal(run: Run, reference: Run) -> None:
    """Require the same slots of the optimizer at the start, which may be restored, and the end."""

    def slots(side: Run, task: str) -> list[str]:
        held = [weights(side, when, task) for when in ("initial", "final")]
        return [e["slots_digest"] for e in some(f"weights of {task}", [*held[0], *held[1]])]

    _sides_equal("digest of {task}'s slots", run, reference, slots)


@check
def observed_epochs_equal(run: Run, reference: Run) -> None:
    """Require the same epochs of `fit`: number, steps, and metrics up to rounding."""
    _hooks_work(run)
    for task in run.drivers:
        found, wanted = run.of("epoch", task), some(f"epoch of {task}", reference.of("epoch", task))
        sides = [
            [(e["epoch"], e["steps"], e["global_step"]) for e in side] for side in (found, wanted)
        ]
        equal(f"(epoch, steps, global step) of {task}", *sides)
        for one, other in zip(found, wanted, strict=True):
            _metrics_equal(f"epoch {one['epoch']} of {task}", one["metrics"], other["metrics"])


@check
def observed_cluster_equal(run: Run, reference: Run) -> None:
    """Require that `joined` has the same size of the cluster, chief, backend and replicas."""

    def cluster(side: Run, task: str) -> tuple[Any, ...]:
        joined = some(f"joined event of {task}", side.of("joined", task))[-1]
        jobs = {job: len(hosts) for job, hosts in joined["cluster"].items()}
        return jobs, *(joined[k] for k in ("workers", "chief", "backend", "replicas"))

    what = "(jobs, workers, chief, backend, replicas) of {task}"
    _sides_equal(what, run, reference, cluster)


@check
def observed_end_equals(run: Run, reference: Run) -> None:
    """Require that `finished` has the same number of steps and global step."""

    def end(side: Run, task: str) -> tuple[int, int]:
        finished = some(f"finished event of {task}", side.of("finished", task))[-1]
        return finished["steps"], finished["global_step"]

    _sides_equal("(steps, global step) at the end of {task}", run, reference, end)
