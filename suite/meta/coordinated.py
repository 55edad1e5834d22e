"""Hand-written histories of a coordinator, which alone reports the steps that servers run for it.

No fake trainer produces them: their only special feature is which task reports which event. A
launch's `defect` names the defect in the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reference_trainers import BY_NAME, Trainer
from suite.harness.checks.parameter_servers import GOING_ON
from suite.harness.core.history import Event, Run
from suite.meta.fakes import PROGRAM

COORDINATOR = replace(
    BY_NAME["coordinator_parameter_server"], name="fake_coordinator", path=PROGRAM, keras=False
)
# Keras' fit reports epochs only.
FIT = replace(BY_NAME["keras_parameter_server"], name="fake_fit", path=PROGRAM, keras=False)
CHIEF, SERVERS, WORKERS = "chief/0", ("ps/0", "ps/1"), ("worker/0", "worker/1")
TASKS = (CHIEF, *SERVERS, *WORKERS)
ROUND = 10  # functions that are scheduled at once

TaskEvent = tuple[str, str, Mapping[str, Any]]


def history(events: Iterable[TaskEvent], trainer: Trainer = COORDINATOR, **flags: Any) -> Run:
    """Return a run from (task, event, fields), one second apart; fields may hold `attempt`."""
    made = tuple(
        Event(name, float(i), task, data.get("attempt", 0), data)
        for i, (task, name, data) in enumerate(events)
    )
    return Run(trainer, TASKS, WORKERS, "none", "none", made, flags=flags)


def worker_lost(launch: Any) -> Run:
    """Return three rounds of functions: with both workers, with one and with both again."""
    defect = launch.defect
    both = {WORKERS[0]: 5, WORKERS[1]: 5}
    uneven = {WORKERS[0]: ROUND}
    events = [*_joined(defect), (CHIEF, "placed", _placement(defect))]
    if defect == "takes_what_another_left":
        events.append((CHIEF, "executed", {"steps": 3, "by": {WORKERS[0]: 3}, "updates": 0}))
    events += _round(0, uneven if defect == "uses_one_worker" else both)
    events.append((WORKERS[1], "fault_started", {"fault": "sigkill"}))
    events.append((WORKERS[1], "exited", _end(-9, True)))
    if defect != "waits_for_the_lost_worker":
        events += _round(1, uneven)
    events.append((WORKERS[1], "spawned", {"attempt": 1}))
    if defect == "waits_for_the_lost_worker":
        events += _round(1, uneven)
    events += _round(2, uneven if defect in ("uses_one_worker", "forgets_the_worker") else both)
    # One function was in flight when the worker died. It had already applied its update.
    updates = 3 * ROUND + {"loses_a_function": -1, "repeats_a_round": ROUND}.get(defect, 1)
    events.append((CHIEF, "checkpoint_saved", {"path": "ckpt-1", "global_step": updates}))
    events.append((CHIEF, "finished", {"global_step": updates, "steps": 3 * ROUND}))
    events += _ends(defect)
    return history(events, COORDINATOR, epochs=1, **{"steps-per-epoch": 3 * ROUND})


def server_lost(launch: Any) -> Run:
    """Return the history of a coordinator that dies because a parameter server died."""
    said = {"dies_of_something_else": "InvalidArgumentError: no such handle"}
    error = said.get(launch.defect, "PSUnavailableError: connection refused")
    code = 0 if launch.defect == "ends_as_if_it_were_done" else 1
    return history(
        [
            (SERVERS[0], "fault_started", {"fault": "sigkill"}),
            (CHIEF, "peer_lost", {"error": error}),
            (CHIEF, "exited", _end(code, launch.defect == "hangs")),
        ]
    )


def fit_worker_lost(launch: Any) -> Run:
    """Return the history of epochs after a worker is lost, and after it is restarted."""
    defect, number = launch.defect, 0
    events: list[TaskEvent] = []

    def epochs() -> None:
        nonlocal number
        for _ in range(GOING_ON):
            number += 1
            events.append((CHIEF, "epoch", {"epoch": number, "global_step": number}))

    events.append((WORKERS[1], "fault_started", {"fault": "sigkill"}))
    events.append((WORKERS[1], "exited", _end(-9, True)))
    if defect != "waits_for_the_lost_worker":
        epochs()
    events.append((WORKERS[1], "spawned", {"attempt": 1}))
    if defect == "fails_when_it_is_back":
        events.append((CHIEF, "exited", _end(1, False)))
    elif defect != "hangs_when_it_is_back":
        epochs()
    return history(events, FIT)


def late_worker(launch: Any) -> Run:
    """Return a history in which the last worker starts late and the first epoch ends after that."""
    events: list[TaskEvent] = [(task, "started", {}) for task in TASKS]
    epoch: TaskEvent = (CHIEF, "epoch", {"epoch": 1, "global_step": 5})
    events.insert(-1 if launch.defect == "trains_without_it" else len(events), epoch)
    return history(events, FIT)


def _joined(defect: str) -> Iterable[TaskEvent]:
    cluster = {"chief": ["a:1"], "ps": ["a:2", "a:3"], "worker": ["a:4", "a:5"]}
    for task in TASKS:
        chief = task == CHIEF or (defect == "two_chiefs" and task == WORKERS[0])
        workers = 3 if defect == "counts_itself" and task == CHIEF else 2
        yield task, "joined", {"cluster": cluster, "workers": workers, "chief": chief}


def _placement(defect: str) -> Mapping[str, Any]:
    places = {"bias": 1, "kernel/part_0": 0, "kernel/part_1": 1}
    if defect == "keeps_all_parts_together":
        places["kernel/part_1"] = 0
    device = "/job:ps/replica:0/task:%d/device:CPU:0"
    return {"variables": {name: device % i for name, i in places.items()}, "ops": {}}


def _round(number: int, by: Mapping[str, int]) -> Iterable[TaskEvent]:
    yield CHIEF, "scheduled", {"steps": ROUND}
    yield CHIEF, "executed", {"steps": ROUND, "by": by, "updates": (number + 1) * ROUND}
    for step in range(number * ROUND + 1, (number + 1) * ROUND + 1):
        fields = {"step": step, "global_step": step, "loss": 1 / step, "examples": 64}
        yield CHIEF, "step", fields


def _end(code: int, by_harness: bool) -> dict[str, Any]:
    return {"code": code, "signal": 0, "ended_by_harness": by_harness}


def _ends(defect: str) -> Iterable[TaskEvent]:
    yield CHIEF, "exited", _end(1 if defect == "fails_at_the_end" else 0, False)
    for task in SERVERS:
        yield task, "exited", _end(0, defect != "leaves_with_the_chief")
    yield WORKERS[0], "exited", _end(-15, True)
    yield WORKERS[1], "exited", {**_end(-15, True), "attempt": 1}
