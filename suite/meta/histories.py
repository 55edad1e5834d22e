"""Histories that nobody lived: for checks of programs that have no fake, because they do one thing.

Each function takes what `scenarios` take and makes the outcome by hand; the launch's `defect` names
what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from suite.harness.run import Event, Run
from suite.harness.scenarios import Compared, Continued
from suite.meta.fakes import WORKERS, FakeCase

TASKS = ("worker/0", "worker/1")
TEXT = "Could not apply FILE based sharding: the dataset only has 1 file(s), which is not enough"


def history(*events: tuple[str, str, Mapping[str, Any]], **flags: Any) -> Run:
    """A run of two workers from (task, event, fields), one second apart."""
    made = tuple(
        Event(name, float(i), task, 0, data) for i, (task, name, data) in enumerate(events)
    )
    return Run(WORKERS, TASKS, TASKS, "ring", "none", made, flags=flags)


def state(when: str, step: int, digest: str) -> dict[str, Any]:
    return {"when": when, "global_step": step, "digest": digest}


def files(launch: FakeCase) -> Run:
    """Three records a file, file i read by worker i % 2."""
    seen = {"worker/0": [0, 1, 2, 6, 7, 8], "worker/1": [3, 4, 5, 9, 10, 11]}
    if launch.defect == "reads_a_neighbours_file":
        seen["worker/1"] += [0, 1, 2]
    read = [(task, "input", {"ids": ids}) for task, ids in seen.items()]
    return history(*read, files=4, records=3)


def few_files(launch: FakeCase) -> Run:
    text = "end of data" if launch.defect == "does_not_say_why" else TEXT
    said = [(task, "refused", {"error": text}) for task in TASKS]
    return history(*said, *((task, "exited", {"code": 1}) for task in TASKS))


def outside_scope(launch: FakeCase) -> Run:
    return _scope(together=launch.defect == "distributes_it_all_the_same")


def inside_scope(launch: FakeCase) -> Run:
    return _scope(together=launch.defect != "drifts_apart")


def _scope(together: bool) -> Run:
    digests = ("a", "a") if together else ("a", "b")
    said = [(task, "refused", {"error": ""}) for task in TASKS]
    held = [(t, "weights", state("final", 8, digests[i])) for i, t in enumerate(TASKS)]
    return history(*said, *held)


def local_server(launch: FakeCase) -> Run:
    target = "grpc://localhost:1"
    answer = "" if launch.defect == "answers_only_itself" else "Hello"
    return history(
        ("server/0", "answered", {"value": "Hello", "target": target}),
        ("server/0", "serving", {"target": target}),
        ("client/0", "answered", {"value": answer, "target": target}),
    )


def model_checkpoint(launch: FakeCase) -> Continued:
    step, digest = (5, "trained") if launch.defect == "resumes_after_all" else (0, "fresh")

    def once(step: int, digest: str) -> Run:
        first = [(task, "weights", state("initial", step, digest)) for task in TASKS]
        last = [(task, "weights", state("epoch", step + 5, "trained")) for task in TASKS]
        return history(*first, *last, (TASKS[0], "checkpoint_saved", {"path": "model-1"}))

    return Continued(once(0, "fresh"), once(step, digest))


def shared_backup(launch: FakeCase) -> Continued:
    return _backup(8 if launch.defect == "keeps_the_backup" else 0)


def separate_backup(launch: FakeCase) -> Continued:
    return _backup(0 if launch.defect == "loses_the_backup" else 8)


def _backup(step: int) -> Continued:
    def once(step: int, error: str) -> Run:
        return history(
            (TASKS[0], "restored", {"global_step": step}), (TASKS[0], "collided", {"error": error})
        )

    return Continued(once(0, "interrupted"), once(step, ""))


def side_evaluator(launch: FakeCase) -> Compared:
    loss = 2.5 if launch.defect == "evaluates_something_else" else 2.0
    run = history(
        (TASKS[0], "weights", state("final", 10, "a")),
        (TASKS[0], "evaluated", {"global_step": 10, "metrics": {"loss": 2.0}}),
    )
    beside = history(
        ("evaluator/0", "restored", {"global_step": 10, "digest": "a"}),
        ("evaluator/0", "evaluated", {"global_step": 10, "metrics": {"loss": loss}}),
        (TASKS[0], "exited", {"code": 0}),
    )
    return Compared(run, beside)


def loaded_export(launch: FakeCase) -> Continued:
    loss = 2.5 if launch.defect == "loads_something_else" else 2.0
    metrics = [{"metrics": {"loss": value}} for value in (2.0, loss)]
    runs = [history((TASKS[0], "evaluated", measured)) for measured in metrics]
    return Continued(*runs)


def aggregates(launch: FakeCase) -> Run:
    """Two steps of two gradients each, and one that comes too late for the second."""
    values = [-2.0, -8.0]
    if launch.defect == "adds_them_up":
        values = [-4.0, -16.0]
    if launch.defect == "takes_stale_ones":
        values = [-2.0, -2.0 - 112.0 / 3]
    given = [(1.0, 0), (3.0, 0), None, (100.0, 0), (5.0, 1), (7.0, 1), None]
    made: list[tuple[str, str, dict[str, Any]]] = []
    for one in given:
        if one:
            gradient, step = one
            made.append((TASKS[0], "contributed", {"gradient": gradient, "local_step": step}))
        else:
            step = sum(name == "applied" for _, name, _ in made)
            made.append((TASKS[0], "applied", {"global_step": step + 1, "value": values[step]}))
    return history(*made, **{"replicas-to-aggregate": 2})


# Named as the check that reads it.
MADE_UP: Mapping[str, Callable[[Any], Any]] = {
    "files_sharded": files,
    "too_few_files_refused": few_files,
    "outside_scope_is_not_in_step": outside_scope,
    "inside_scope_is_in_step": inside_scope,
    "local_server_answers": local_server,
    "fresh_gradients_are_averaged": aggregates,
    "model_checkpoint_does_not_resume": model_checkpoint,
    "shared_backup_collides": shared_backup,
    "separate_backup_resumes": separate_backup,
    "side_evaluator_agrees": side_evaluator,
    "loaded_export_evaluates_same": loaded_export,
}
