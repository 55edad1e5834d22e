"""Check startup: the members of the cluster, its chief, and that training waits for all tasks."""

from __future__ import annotations

from collections import Counter

from suite.harness.checks.assertions import check, equal, only, require, same, some
from suite.harness.core.history import Run
from suite.harness.tables.programs import APPROACHES, BY_TRAINER


@check
def waits_for_all(run: Run) -> None:
    """Require that no task trains before the last task is up, although others were up before it."""
    up = {task: only(f"start of {task}", run.of("started", task, 0)) for task in run.tasks}
    late = max(up.values(), key=lambda e: e.time_s)
    waiting = [e for e in up.values() if e is not late]
    some("task that waits for another", waiting)
    sign = run.trainer.progress
    first = min(some(sign, run.of(sign)), key=lambda e: e.time_s)
    require(
        not run.surely_before(first, late),
        f"{first.task} made a {sign} at {first.time_s:.3f} s, "
        f"before {late.task} was up at {late.time_s:.3f} s",
    )


@check
def one_chief(run: Run) -> None:
    """Require that only the `chief` job or, without one, the first worker is the chief."""
    joined = some("task that joined", run.of("joined"))
    chiefs = sorted({e.task for e in joined if e["chief"]})
    equal("tasks that call themselves chief", chiefs, [run.drivers[0]])


@check
def cluster_as_given(run: Run) -> None:
    """Require that every task sees the cluster as configured and counts the same workers.

    An evaluator is no member of the cluster whose checkpoints it follows.
    """
    for task in {*run.workers, *run.drivers}:
        some(f"joined event of {task}", run.of("joined", task))
    joined = [e for e in run.of("joined") if not e.task.startswith("evaluator/")]
    cluster = same("cluster", {e.task: e["cluster"] for e in joined})
    found = {job: len(addresses) for job, addresses in cluster.items()}
    jobs = [task.split("/")[0] for task in run.tasks if run.trainer.jobs]
    equal("tasks of each job", found, dict(Counter(job for job in jobs if job != "evaluator")))
    workers = same("number of workers", {e.task: e["workers"] for e in joined})
    equal("number of workers", workers, len(run.workers))


@check
def strategy_as_recognized(run: Run) -> None:
    """Require that a user's program makes the strategy of the approach for which it was taken.

    Otherwise it was examined for promises of another one. What the program itself reports of its
    cluster does not have the strategy.
    """
    joined = [some(f"joined event of {task}", run.of("joined", task)) for task in run.drivers]
    approach = BY_TRAINER[run.trainer.like]
    for event in (e for events in joined for e in events):
        made = event.get("strategy")
        if made is None or not approach.makes or made in approach.makes:
            continue
        wanted = " or ".join(filter(None, approach.makes)) or "no strategy"
        # Without a strategy the last row, one process, is the likeliest.
        fitting = next((other.name for other in reversed(APPROACHES) if made in other.makes), "")
        require(
            False,
            f"taken for {approach.name} ({wanted}), but {event.task} made {made or 'no strategy'}; "
            f'say approach = "{fitting}" in the TOML file of --trainer',
        )


@check
def server_target_logged(run: Run) -> None:
    """Require that each task logs its gRPC target: its own address in the cluster."""
    for event in some("task that joined", run.of("joined")):
        job, index = event.task.split("/")
        addresses = event["cluster"].get(job, [])
        require(len(addresses) > int(index), f"the cluster of {event.task} has no such task")
        target = f"grpc://{addresses[int(index)]}"
        require(
            f"Started server with target: {target}" in run.log(event.task, event.attempt),
            f"the log of {event.task} does not say `Started server with target: {target}`",
        )


@check
def trains_as_a_cluster_of_one(run: Run) -> None:
    """Require that one process without TF_CONFIG is a cluster of one, its own chief, and trains."""
    joined = only("joined event", run.of("joined"))
    equal("cluster", joined["cluster"], {})
    equal("number of workers", joined["workers"], 1)
    equal("chief", joined["chief"], True)
    digests = {e["digest"] for e in run.of("weights")}
    require(len(digests) > 1, f"training changed no weights: {digests}")


@check
def unexpected_task_changes_nothing(run: Run, unexpected: str) -> None:
    """Require that an unexpected task never trains, and that no driver counts it as a worker."""
    steps = run.of("step", unexpected)
    require(not steps, f"{unexpected} made {len(steps)} steps in a cluster that it is no part of")
    up = some(f"start of {unexpected}", run.of("started", unexpected))[-1].time_s
    for task in run.drivers:
        joined = some(f"joined event of {task}", run.of("joined", task))[-1]
        equal(f"number of workers that {task} counts", joined["workers"], len(run.workers))
        sign = run.trainer.progress
        after = [e for e in run.of(sign, task) if e.time_s > up]
        some(f"{sign} of {task} after {unexpected} was up", after)
