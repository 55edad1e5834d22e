"""Parameter servers: what is placed where, who steps, who waits, what the chief saves.

`run.drivers` are the tasks that tell: the workers, or the one that coordinates them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from suite.harness.checks.assertions import asked_steps, check, equal, only, require, some
from suite.harness.checks.checkpoints import _remains, chief
from suite.harness.core.history import Event, Run

DEVICE = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
# A fair share of the steps is one over the number of workers; how fair it is, nobody promises.
SMALLEST_SHARE = 0.1
GOING_ON = 5  # steps; fewer may have been on their way already


def _tasks_of(places: dict[str, str]) -> dict[str, str]:
    """Name -> task ("ps/0") that a device string names."""
    found = {}
    for name, device in places.items():
        match = DEVICE.search(device)
        require(match, f"{name} is on {device!r}, which names no job and task")
        assert match
        found[name] = "/".join(match.groups())
    return found


@check
def variables_round_robin(run: Run) -> None:
    """The variables, in the order of their creation, are on the parameter servers in turn.

    Keras creates variables of its own before those of the model, so that any server may be first.
    """
    servers = [task for task in run.tasks if task.startswith("ps/")]
    require(len(servers) > 1, f"there are no turns among {servers}")
    for event in some("placement", run.of("placed")):
        variables = _tasks_of(event["variables"])
        require(len(variables) >= len(servers), f"too few variables to tell: {variables}")
        first = servers.index(next(iter(variables.values())))
        turns = [servers[(first + i) % len(servers)] for i in range(len(variables))]
        equal(f"places of {list(variables)}", list(variables.values()), turns)


@check
def shards_on_every_server(run: Run) -> None:
    """A large variable is in parts, and every parameter server holds one of them."""
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
    """Each worker computes on itself; of its ops only those of variables run on the servers."""
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
    """Each worker makes a fair part of the steps."""
    counts = {task: len(run.made_by(task)) for task in run.workers}
    fair = sum(counts.values()) / len(counts)
    few = {task: n for task, n in counts.items() if n < SMALLEST_SHARE * fair or n == 0}
    require(not few, f"steps by worker: {counts}; too few: {few}")


@check
def global_step_counts_all(run: Run) -> None:
    """The shared global step is the number of all workers' steps."""
    steps = some("step", run.of("step"))
    counted = max(e["global_step"] for name in ("step", "finished") for e in run.of(name))
    # A worker reads the counter while others add to it, and may read it before its own addition.
    slack = len(run.workers)
    require(
        abs(counted - len(steps)) <= slack,
        f"the global step came to {counted}, all workers together made {len(steps)} steps",
    )


@check
def aggregates_accounted(run: Run) -> None:
    """Gradients were made for all of the global steps, and none beyond what tokens allow.

    Which worker makes how many nobody promises. A step takes as many as are aggregated, here one of
    each worker, and gives each worker leave for one more; so many have leave before the first step
    is made, and some of those come too late for it and are dropped.
    """
    workers = len(run.workers)
    made = {task: len(run.of("step", task)) for task in run.workers}
    ends = [some(f"`finished` of {task}", run.of("finished", task))[-1] for task in run.workers]
    counted = max(e["global_step"] for e in ends)
    fewest, most = workers * counted, workers * (counted + 1)
    total = sum(made.values())
    require(
        fewest <= total <= most and total,
        f"the workers made {total} steps ({made}); {counted} global steps of {workers} gradients "
        f"take {fewest} to {most}",
    )


@check
def stops_at_the_limit(run: Run) -> None:
    """No driver makes another step once it has seen the step limit, and each one gets there."""
    limit = asked_steps(run)
    for task in run.drivers:
        steps = [e["global_step"] for e in run.of("step", task)]
        beyond = [step for step in steps[:-1] if step >= limit]
        require(not beyond, f"{task} went on after it had seen step {beyond[:1]} of {limit}")
        end = only(f"`finished` of {task}", run.of("finished", task))["global_step"]
        require(end >= limit, f"{task} stopped at global step {end} of {limit}")


@check
def servers_serve_until_ended(run: Run) -> None:
    """A server never ends by itself: only the harness ends it, after the last driver."""
    servers = [task for task in run.tasks if task.split("/")[0] in run.trainer.services]
    ends = [only(f"end of {task}", run.of("exited", task)).time_s for task in run.drivers]
    for task in some("server", servers):
        exited = only(f"end of {task}", run.of("exited", task))
        require(
            exited["ended_by_harness"] and exited.time_s >= max(ends),
            f"{task} ended by itself (code {exited['code']}, signal {exited['signal']}), "
            f"{max(ends) - exited.time_s:.3f} s before the last driver",
        )


@check
def workers_wait_for_chief(run: Run) -> None:
    """No worker makes a step before the chief, which came last, can have initialised anything.

    When it has is known to the servers alone: its own word of it may come after others' steps.
    """
    leader = chief(run)
    up = only(f"start of {leader}", run.of("started", leader))
    others = [e for e in run.of("started") if e.task in run.workers and e.time_s < up.time_s]
    some(f"worker that was up before {leader}", others)
    steps = [e for e in run.of("step") if e.task != leader]
    first = min(some(f"step of others than {leader}", steps), key=lambda e: e.time_s)
    require(
        first.time_s > up.time_s,
        f"{first.task} made a step {up.time_s - first.time_s:.3f} s before {leader} was up",
    )


@check
def supervisor_saves(run: Run) -> None:
    """The chief, and nobody else, saves while it trains, each time further on, and it is there."""
    saved = some("checkpoint", run.of("checkpoint_saved"))
    equal("tasks that save", sorted({e.task for e in saved}), [chief(run)])
    steps = [e["global_step"] for e in saved]
    require(steps == sorted(steps), f"global steps of the checkpoints: {steps}")
    require(steps[-1] > steps[0], f"no checkpoint is further on than the first: {steps}")
    require(_remains(saved[-1]["path"]), f"the last checkpoint is gone: {saved[-1]['path']}")


@check
def supervisor_writes_summaries(run: Run) -> None:
    """The chief, and nobody else, writes summaries of its training."""
    summaries = some("summary", run.of("summary"))
    equal("tasks that write summaries", sorted({e.task for e in summaries}), [chief(run)])
    require(_remains(summaries[-1]["path"]), f"there is no {summaries[-1]['path']}")


@check
def chief_restores_the_latest(run: Run) -> None:
    """A chief that comes back begins with its last checkpoint, however far the others are."""
    restored, latest = _restored_and_latest(run)
    # It may have been killed after it had saved once more, and before it could tell.
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
    """When all have been restarted, the variables are those of the last checkpoint, every bit."""
    restored, latest = _restored_and_latest(run)
    for key in ("path", "global_step", "digest"):
        equal(f"{key} that was restored", restored[key], latest[key])
    for task in run.drivers:
        after = run.of(run.trainer.progress, task, restored.attempt)
        steps = some(f"step of {task} after", after)
        late = steps[0]["global_step"] >= _first_seen(run, latest)
        require(late, f"{task}'s first step is {steps[0]['global_step']}, restored was {latest}")


def _first_seen(run: Run, restored: Event) -> int:
    """The least global step that a worker can see after a step of its own.

    Where a step aggregates several gradients, it may be one for which others are still to come.
    """
    return restored["global_step"] + (not run.trainer.aggregates)


def _restored_and_latest(run: Run) -> tuple[Event, Event]:
    leader = chief(run)
    restored = some(f"`restored` of {leader}", run.of("restored", leader))[-1]
    before = [e for e in run.of("checkpoint_saved") if e.attempt < restored.attempt]
    return restored, some(f"checkpoint before {leader} came back", before)[-1]


@check
def survivors_keep_training(run: Run) -> None:
    """While a worker is dead the others go on making steps."""
    for made, told in _made_without(run):
        require(made >= GOING_ON, told)


@check
def coordinator_continues(run: Run) -> None:
    """The task that drives the loop goes on without a lost worker, and when it is back."""
    lost, died, back = _absence(run)
    for task in run.drivers:
        ended = run.exit_of(task)
        require(not ended or ended["ended_by_harness"], f"{task} ended: {ended}")
        told = run.made_by(task)
        without = [e for e in told if died < e.time_s < back]
        again = [e for e in told if e.time_s > back]
        what = f"{run.trainer.progress}s that {task} told of while {lost} was"
        require(len(without) >= GOING_ON, f"{what} dead: {len(without)}, fewer than {GOING_ON}")
        require(len(again) >= GOING_ON, f"{what} back: {len(again)}, fewer than {GOING_ON}")


@check
def peers_block_without_worker(run: Run) -> None:
    """While a worker is dead the others stand still for want of its gradients, then go on."""
    for made, told in _made_without(run):
        require(made < GOING_ON, told)
    back = run.of("spawned", attempt=1)[0]
    for task in run.workers:
        after = [e for e in run.of("step", task) if e.time_s > back.time_s]
        some(f"step of {task} after {back.task} came back", after)


def _absence(run: Run) -> tuple[str, float, float]:
    """The task that was lost, when it died and when it came back, in seconds."""
    lost = some("fault", run.of("fault_started"))[0].task
    died = only(f"death of {lost}", run.of("exited", lost, 0)).time_s
    return lost, died, only(f"return of {lost}", run.of("spawned", lost, 1)).time_s


def _made_without(run: Run) -> Iterator[tuple[int, str]]:
    """How many steps each worker made while the lost one was dead: the number, and in words."""
    lost, died, back = _absence(run)
    for task in some("worker that survives", [task for task in run.workers if task != lost]):
        made = sum(e.time_s < back for e in run.made_by(task, died))
        yield (
            made,
            f"{task} made {made} steps in the {back - died:.3f} s in which {lost} was dead",
        )


@check
def lost_worker_returns(run: Run) -> None:
    """A worker that died and was started again makes steps again."""
    lost = some("fault", run.of("fault_started"))[0].task
    back = some(f"second start of {lost}", [e for e in run.of("spawned", lost) if e.attempt])[-1]
    some(f"step of {lost} after it came back", run.made_by(lost, back.time_s))


@check
def no_finish_without_parameter_server(run: Run) -> None:
    """When a parameter server dies, no driver ends as if it were done."""
    some("fault", run.of("fault_started"))
    for task in run.drivers:
        exited = only(f"end of {task}", run.of("exited", task, 0))
        equal(f"{task} ended as if it were done", exited["code"] == 0, False)


@check
def lost_server_raises(run: Run) -> None:
    """When a parameter server is lost, each driver gets an error: it is unavailable, or aborted."""
    fault = some("fault", run.of("fault_started"))[0]
    for task in run.drivers:
        event = some(f"error that {task} got", run.of("peer_lost", task, fault.attempt))[0]
        said = re.search("Unavailable|Aborted", event["error"].split(":")[0])
        require(said, f"{task} got another error when {fault.task} was lost: {event['error']}")


@check
def functions_run_at_least_once(run: Run) -> None:
    """When a worker is lost, no function that was scheduled is, and few run more than once.

    Counted at each save, when none is on its way: a worker runs one at a time, so that of each
    loss at most as many could be repeated as there are workers.
    """
    leader = chief(run)
    for event in some("checkpoint after a loss", _saved_after(run, run.of("fault_started"))):
        before = [e for e in run.events if e.attempt == event.attempt and e.time_s < event.time_s]
        scheduled = sum(e["steps"] for e in before if e.name == "scheduled" and e.task == leader)
        first = next((e["global_step"] for e in before if e.name == "restored"), 0)
        lost = sum(e.name == "fault_started" for e in before)
        repeated = event["global_step"] - first - scheduled
        require(
            0 <= repeated <= lost * len(run.workers),
            f"{scheduled} functions were scheduled before {event['path']}, which holds "
            f"{event['global_step'] - first} updates; {lost} workers were lost of {run.workers}",
        )


@check
def executed_as_scheduled(run: Run) -> None:
    """A coordinator gets as many functions back as it scheduled, and of no coordinator before it.

    As with updates, few may have run more than once when workers were lost.
    """
    leader = chief(run)
    for last in some(f"round of {leader}", run.of("executed", leader)):
        told = [e for e in run.events if e.attempt == last.attempt and e.time_s <= last.time_s]
        given, back = (
            sum(e["steps"] for e in told if e.name == name and e.task == leader)
            for name in ("scheduled", "executed")
        )
        lost = sum(e.name == "fault_started" for e in told)
        require(
            0 <= back - given <= lost * len(run.workers),
            f"start {last.attempt} of {leader} scheduled {given} functions and told of {back} that "
            f"were executed; {lost} workers were lost of {run.workers}",
        )


def _saved_after(run: Run, faults: list[Event]) -> list[Event]:
    hurt_s = min((e.time_s for e in faults), default=math.inf)
    return [e for e in run.of("checkpoint_saved", chief(run)) if e.time_s > hurt_s]
