"""Check parameter servers of both kinds: placement, losses and restored state.

`run.drivers` are the tasks that report: the workers, or their coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from suite.harness.checks.assertions import check, equal, only, require, some
from suite.harness.checks.checkpoints import chief
from suite.harness.core.history import Event, Run

DEVICE = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
# A fair share of the steps is one over the number of workers. No document promises fairness.
SMALLEST_SHARE = 0.1
GOING_ON = 5  # steps; fewer may have been in flight


def _tasks_of(places: dict[str, str]) -> dict[str, str]:
    """Return name -> task ("ps/0"), parsed from device strings."""
    found = {}
    for name, device in places.items():
        match = DEVICE.search(device)
        require(match, f"{name} is on {device!r}, which names no job and task")
        assert match
        found[name] = "/".join(match.groups())
    return found


@check
def variables_round_robin(run: Run) -> None:
    """Require that variables, in order of creation, are placed round-robin on parameter servers.

    Keras creates variables of its own before those of the model, so any server may be first.
    """
    servers = [task for task in run.tasks if task.startswith("ps/")]
    require(len(servers) > 1, f"no round-robin is possible among {servers}")
    for event in some("placement", run.of("placed")):
        variables = _tasks_of(event["variables"])
        require(len(variables) >= len(servers), f"too few variables for a round: {variables}")
        first = servers.index(next(iter(variables.values())))
        turns = [servers[(first + i) % len(servers)] for i in range(len(variables))]
        equal(f"places of {list(variables)}", list(variables.values()), turns)


@check
def shards_on_every_server(run: Run) -> None:
    """Require that a large variable is sharded, with a shard on every parameter server."""
    servers = {task for task in run.tasks if task.startswith("ps/")}
    require(len(servers) > 1, f"nothing can be spread over {servers}")
    for event in some("placement", run.of("placed")):
        parts: dict[str, set[str]] = {}
        for name, task in _tasks_of(event["variables"]).items():
            whole, part, _ = name.partition("/part_")
            parts.setdefault(whole, set()).update({task} if part else ())
        split = some("variable in parts", {whole: on for whole, on in parts.items() if on}.items())
        for whole, on in split:
            equal(f"servers that hold a part of {whole}", on, servers)


@check
def ops_on_own_worker(run: Run) -> None:
    """Require that each worker computes on itself, and only ops of variables run on the servers."""
    for task in run.workers:
        event = some(f"placement of {task}", run.of("placed", task))[-1]
        places = _tasks_of(event["ops"])
        of_variables = {n for n in places if _is_of_variable(n, event["variables"])}
        some(f"op of {task} that is of a variable", of_variables)
        some(f"op of {task} that computes", places.keys() - of_variables)
        for name, place in places.items():
            own = place.startswith("ps/") if name in of_variables else place == task
            require(own, f"{task} has its op {name} run on {place}")


def _is_of_variable(op: str, variables: Iterable[str]) -> bool:
    return op.split("/")[-1].startswith("ReadVariableOp") or any(
        op == name or op.startswith(name + "/") for name in variables
    )


@check
def all_workers_contribute(run: Run) -> None:
    """Require that each worker makes a fair share of the steps once all of them train.

    Earlier steps do not count: on a busy machine a worker may make most of them before another has
    started. The first step of each worker counts, so that every worker has at least one.
    """
    steps = {task: run.steps_of(task) for task in run.workers}
    idle = [task for task, own in steps.items() if not own]
    require(not idle, f"no steps by {', '.join(idle)}")
    together_s = max(own[0].time_s for own in steps.values())
    counts = {t: max(1, sum(e.time_s >= together_s for e in own)) for t, own in steps.items()}
    fair = sum(counts.values()) / len(counts)
    few = {task: n for task, n in counts.items() if n < SMALLEST_SHARE * fair}
    require(not few, f"steps by worker since all of them train: {counts}; too few: {few}")


@check
def servers_serve_until_ended(run: Run) -> None:
    """Require that only the harness ends a server, after the last driver."""
    servers = [task for task in run.tasks if task.split("/")[0] in run.trainer.services]
    ends = [only(f"end of {task}", run.of("exited", task)) for task in run.drivers]
    last = max(ends, key=lambda e: e.time_s)
    for task in some("server", servers):
        exited = only(f"end of {task}", run.of("exited", task))
        # A user's program may end its servers itself.
        at_end = exited["ended_by_harness"] or (run.trainer.of_user and exited["code"] == 0)
        require(
            at_end and not run.surely_before(exited, last),
            f"{task} ended by itself (code {exited['code']}, signal {exited['signal']}), "
            f"{last.time_s - exited.time_s:.3f} s before the last driver",
        )


@check
def chief_restores_the_latest(run: Run) -> None:
    """Require that a restarted chief restores its last checkpoint, however far its peers are."""
    restored, latest = _restored_and_latest(run)
    # The chief may have been killed after another save, before it could report that save.
    if restored["global_step"] <= latest["global_step"]:
        equal("path that was restored", restored["path"], latest["path"])
    after = run.of(run.trainer.progress, restored.task, restored.attempt)
    first = some(f"step of {restored.task} after it came back", after)[0]["global_step"]
    require(
        first >= _first_seen(run, latest),
        f"the first step after step {latest['global_step']} was restored is {first}",
    )


@check
def cluster_restores_the_latest(run: Run) -> None:
    """Require that a restarted cluster restores the last checkpoint, bit for bit."""
    restored, latest = _restored_and_latest(run)
    for key in ("path", "global_step"):
        equal(f"{key} that was restored", restored[key], latest[key])
    if "digest" in latest.data or not run.trainer.observed:  # of a user's save there is no digest
        equal("digest that was restored", restored["digest"], latest["digest"])
    for task in run.drivers:
        after = run.of(run.trainer.progress, task, restored.attempt)
        steps = some(f"step of {task} after", after)
        late = steps[0]["global_step"] >= _first_seen(run, latest)
        require(late, f"{task}'s first step is {steps[0]['global_step']}, restored was {latest}")


def _first_seen(run: Run, restored: Event) -> int:
    """Return the least global step that a worker can see after a step of its own.

    Where a step aggregates several gradients, it may be one that still lacks other gradients. An
    observer may read the shared step of TensorFlow 1 before it is incremented.
    """
    may_be_early = run.trainer.aggregates or (
        run.trainer.observed and "ps1" in run.trainer.families
    )
    return restored["global_step"] + (not may_be_early)


def _restored_and_latest(run: Run) -> tuple[Event, Event]:
    leader = chief(run)
    restored = some(f"`restored` of {leader}", run.of("restored", leader))[-1]
    before = [e for e in run.of("checkpoint_saved") if e.attempt < restored.attempt]
    return restored, some(f"checkpoint before {leader} came back", before)[-1]


@check
def survivors_keep_training(run: Run) -> None:
    """Require that the other workers make steps while one worker is dead."""
    for made, message in steps_without(run):
        require(made >= GOING_ON, message)


def absence(run: Run) -> tuple[str, float, float]:
    """Return the task that was lost, the time of its death and of its return, in seconds."""
    lost = some("fault", run.of("fault_started"))[0].task
    died = only(f"death of {lost}", run.of("exited", lost, 0)).time_s
    return lost, died, only(f"return of {lost}", run.of("spawned", lost, 1)).time_s


def steps_without(run: Run) -> Iterator[tuple[int, str]]:
    """Yield each worker's number of steps while the lost one was dead, and a message."""
    lost, died, back = absence(run)
    for task in some("worker that survives", [task for task in run.workers if task != lost]):
        made = sum(e.time_s < back for e in run.steps_of(task, died))
        yield (
            made,
            f"{task} made {made} steps in the {back - died:.3f} s in which {lost} was dead",
        )


@check
def lost_worker_returns(run: Run) -> None:
    """Require that a worker makes steps again after it died and was restarted."""
    lost = some("fault", run.of("fault_started"))[0].task
    back = some(f"second start of {lost}", [e for e in run.of("spawned", lost) if e.attempt])[-1]
    some(f"step of {lost} after it came back", run.steps_of(lost, back.time_s))


@check
def no_finish_without_parameter_server(run: Run) -> None:
    """Require that no driver exits with 0 after a parameter server dies."""
    some("fault", run.of("fault_started"))
    for task in run.drivers:
        exited = only(f"end of {task}", run.of("exited", task, 0))
        equal(f"{task} ended as if it were done", exited["code"] == 0, False)


@check
def lost_server_raises(run: Run) -> None:
    """Require that each driver gets Unavailable or Aborted when a parameter server is lost."""
    fault = some("fault", run.of("fault_started"))[0]
    for task in run.drivers:
        event = some(f"error that {task} got", run.of("peer_lost", task, fault.attempt))[0]
        said = re.search("Unavailable|Aborted", event["error"].split(":")[0])
        require(said, f"{task} got another error when {fault.task} was lost: {event['error']}")
