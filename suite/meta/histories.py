"""Hand-written histories, for checks of single-purpose programs that have no fake.

Each function takes the arguments of a scenario and builds the outcome by hand. The launch's
`defect` names the defect in the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from suite.harness.checks import numpy_model
from suite.harness.core.formats import formats_of
from suite.harness.core.history import Event, Run
from suite.harness.core.outcomes import Compared, Continued, Misconfigured, Moved, Saved
from suite.meta.fakes import WORKERS, FakeCase, data_file

TASKS = ("worker/0", "worker/1")
TEXT = "Could not apply FILE based sharding: the dataset only has 1 file(s), which is not enough"


def history(*events: tuple[str, str, Mapping[str, Any]], **flags: Any) -> Run:
    """Return a run of two workers from (task, event, fields), one second apart."""
    made = tuple(
        Event(name, float(i), task, 0, data) for i, (task, name, data) in enumerate(events)
    )
    return Run(WORKERS, TASKS, TASKS, "ring", "none", made, flags=flags)


def state(when: str, step: int, digest: str) -> dict[str, Any]:
    return {"when": when, "global_step": step, "digest": digest}


def dumped(launch: FakeCase, name: str, *arrays: numpy_model.Array) -> str:
    """Return the path of a file with these arrays, as an observer saves them."""
    path = launch.directory / f"{name}.npz"
    np.savez(path, *arrays)
    return str(path)


def files(launch: FakeCase) -> Run:
    """Return a run with three records in each file, where worker i % 2 reads file i."""
    seen = {"worker/0": [0, 1, 2, 6, 7, 8], "worker/1": [3, 4, 5, 9, 10, 11]}
    if launch.defect == "reads_a_peers_file":
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


def signal_handler(launch: FakeCase) -> Run:
    handled = launch.defect != "replaces_the_handler"
    signals = {"without a strategy": True, "with a strategy": handled}
    return history(
        *(
            (task, "signaled", {"when": when, "handled": ran, "installed": True})
            for task in TASKS
            for when, ran in signals.items()
        )
    )


def chief_back(launch: FakeCase) -> Run:
    """Return a run whose chief exits and comes back to a model that its peer has trained."""
    restored = (TASKS[0], "restored", {"global_step": 4})
    run = history(
        (TASKS[0], "step", {"global_step": 5}),
        (TASKS[1], "step", {"global_step": 6}),
        *([restored] if launch.defect == "restores_a_checkpoint" else []),
        (TASKS[0], "step", {"global_step": 7}),
    )
    first, *others = run.events
    back = (replace(e, attempt=1) if e.task == TASKS[0] else e for e in others)
    return replace(run, events=(first, *back))


def reproduced(log: Path, code: int, *lines: str) -> Run:
    """Return the history of a reproduction that printed these lines."""
    log.write_text("\n".join(lines) + "\n")
    run = history((TASKS[0], "exited", {"code": code}))
    return replace(run, logs={(TASKS[0], 0): log})


def reproduction(launch: FakeCase) -> Run:
    code = 1 if launch.defect == "observes_a_deviation" else 0
    return reproduced(launch.directory / "log", code, "expected: 1", f"observed: {code + 1}")


def local_server(launch: FakeCase) -> Run:
    target = "grpc://localhost:1"
    answer = "" if launch.defect == "answers_only_itself" else "Hello"
    return history(
        ("server/0", "answered", {"value": "Hello", "target": target}),
        ("server/0", "serving", {"target": target}),
        ("client/0", "answered", {"value": answer, "target": target}),
    )


def many_runs(launch: FakeCase) -> Run:
    error = "AbortedError: received twice" if launch.defect == "has_a_run_that_fails" else ""
    return history(("worker/0", "refused", {"error": error}))


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
    evaluator = history(
        ("evaluator/0", "restored", {"global_step": 10, "digest": "a"}),
        ("evaluator/0", "evaluated", {"global_step": 10, "metrics": {"loss": loss}}),
        (TASKS[0], "exited", {"code": 0}),
    )
    return Compared(run, evaluator)


def loaded(launch: FakeCase) -> Continued:
    """Return an evaluation, and then evaluations from three kinds of save."""
    wrong = {
        "loads_another_export": "export",
        "loads_another_in_scope": "export in scope",
        "loads_an_older_checkpoint": "checkpoint",
    }.get(launch.defect)
    run = history((TASKS[0], "evaluated", {"metrics": {"loss": 2.0}}))
    ways = ("export", "export in scope", "checkpoint")
    again = [
        ("worker/0", "evaluated", {"metrics": {"loss": 2.5 if how == wrong else 2.0}, "how": how})
        for how in ways
    ]
    return Continued(run, history(*again))


def callbacks(launch: FakeCase) -> Continued:
    """Return nine epochs with a schedule, a checkpoint each and event files of their losses."""
    epochs, task = range(1, 10), TASKS[0]
    rates = [0.001 if e < 4 else 0.0001 if e < 8 else 0.00001 for e in epochs]
    if launch.defect == "keeps_its_learning_rate":
        rates = [0.001 for _ in epochs]
    log = launch.directory / "log"
    log.write_text("".join(f"Learning rate for epoch {e} is {rates[e - 1]:.9g}\n" for e in epochs))
    task_events, scalars = [], []
    for e in epochs:
        metrics = {"loss": 2.0 / e, "accuracy": 0.1 * e, "lr": rates[e - 1]}
        task_events.append((task, "epoch", {"epoch": e, "metrics": metrics}))
        saved = launch.directory / f"ckpt_{e}.index"
        if e % 2 or launch.defect != "saves_every_other_epoch":
            saved.write_text("")
            task_events.append((task, "checkpoint_saved", {"path": str(saved.with_suffix(""))}))
        wrong = launch.defect == "writes_other_event_files"
        for tag in ("loss", "accuracy"):
            value = metrics[tag] + wrong
            where = {"path": "train", "tag": f"epoch_{tag}", "global_step": e - 1}
            scalars.append((task, "summary", {**where, "value": value}))
    run = history(*task_events, **{"learning-rate": 0.001})
    run = replace(run, workers=(task,), tasks=(task,), logs={(task, 0): log})
    return Continued(run, history(*scalars))


@dataclass(frozen=True)
class OnDirectory:
    """A run and its directory's contents before and after, under the checks' argument names."""

    run: Run
    misconfigured: Misconfigured


def misconfigured(launch: FakeCase) -> OnDirectory:
    """Return the outcome of one process that was given another model's directory."""
    task, log = TASKS[0], launch.directory / "log"
    said = f"{WORKERS.name}: --model-dir: the checkpoint is of another model\n"
    if launch.defect == "explains_at_length":
        said = f"Traceback (most recent call last):\n  ...\n{said}"
    log.write_text(f"2026-01-01: a warning of TensorFlow's\n{said}")
    run = history((task, "exited", {"code": 2}))
    run = replace(run, workers=(task,), tasks=(task,), logs={(task, 0): log})
    before = {"ckpt/ckpt-1.index": "a", "ckpt/checkpoint": "b"}
    after = {"ckpt/ckpt-1.index": "c"} if launch.defect == "starts_anew" else before
    return OnDirectory(run, Misconfigured(run, before, after))


def layouts(launch: FakeCase) -> Run:
    """Return one array of each kind on two devices, one device of each worker."""
    weights, gradients = ["a", "a"], ["g", "g"]
    parts = [4, 4]
    if launch.defect == "lets_a_device_drift":
        weights = ["a", "b"]
    if launch.defect == "keeps_its_own_gradient":
        gradients = ["g", "h"]
    if launch.defect == "gives_all_the_same_batch":
        parts = [8, 8]

    def array(first: str, shape: list[int], digest: str, device: str) -> dict[str, Any]:
        part = {"device": device, "shape": shape, "digest": digest}
        return {"specs": [first, "unsharded"], "shape": [8, 3], "components": [part]}

    task_events = []
    for i, task in enumerate(TASKS):
        arrays = {
            "weights": [array("unsharded", [8, 3], weights[i], task)],
            "batch": [array("batch", [parts[i], 3], str(i), task)],
            "gradients": [array("unsharded", [8, 3], gradients[i], task)],
        }
        task_events.append((task, "laid_out", arrays))
    return history(*task_events)


def refusals(launch: FakeCase) -> Run:
    """Return the errors that TensorFlow should raise for unsupported operations."""
    batch = "dimension 0 to be divisible by sharding"
    export = "" if launch.defect == "exports_shards" else "only replicated"
    said = [
        ("indivisible batch", "" if launch.defect == "drops_the_rest" else batch),
        ("sharded export", export),
    ]
    return history(*((TASKS[0], "refused", {"what": w, "error": error}) for w, error in said))


def read_back(launch: FakeCase) -> Run:
    read = [0.0, 2.0] if launch.defect == "reads_what_was" else [1.5, 2.0]
    return history((TASKS[0], "read_back", {"assigned": [1.5, 2.0], "read": read}))


def shares(launch: FakeCase) -> Run:
    """Return two passes over the data file's examples, where each worker gets every second one."""
    batches = [list(range(first, EXAMPLES, 2)) for first in (0, 1)]
    swapped = batches[::-1] if launch.defect == "changes_shares" else batches
    return history(*_inputs(1, batches), *_inputs(2, swapped), data=_examples(launch))


def shuffled(launch: FakeCase) -> Run:
    apart = launch.defect != "shuffles_alike"
    return history(*_inputs(1, [[1, 2, 3], [4, 5, 6] if apart else [3, 2, 1]]))


EXAMPLES = 8


def _examples(launch: FakeCase) -> Path:
    return data_file(launch.directory, train=EXAMPLES)


def _inputs(step: int, batches: list[list[int]]) -> list[tuple[str, str, Mapping[str, Any]]]:
    return [
        (task, "input", {"global_step": step, "ids": ids})
        for task, ids in zip(TASKS, batches, strict=True)
    ]


def first_and_last(launch: FakeCase) -> Run:
    steps = (0, 5, 10) if launch.defect != "saves_too_late" else (5, 10)
    flags = {"epochs": 2, "steps-per-epoch": 5}
    return history(*map(_saved, steps), **flags)


def evaluator(launch: FakeCase) -> Run:
    reported = 10 if launch.defect != "reports_another_step" else 9
    evaluated = {"path": "model-10", "global_step": reported, "metrics": {"loss": 2.0}}
    return history(*map(_saved, (0, 10)), ("evaluator/0", "evaluated", evaluated))


def _saved(step: int) -> tuple[str, str, Mapping[str, Any]]:
    return TASKS[0], "checkpoint_saved", {"path": f"model-{step}", "global_step": step}


def eager(launch: FakeCase) -> Run:
    error = "" if launch.defect == "trains_eagerly" else "cannot pickle '_thread.lock' object"
    return history(*((task, "refused", {"error": error}) for task in TASKS))


def predictions(launch: FakeCase) -> Run:
    by = {"evaluate": 2.0, "eval_distribute": 2.0, "predict": 2.0}
    if launch.defect == "predicts_something_else":
        by["predict"] = 2.5
    return history(
        *(
            (TASKS[0], "evaluated", {"by": how, "global_step": 5, "metrics": {"loss": loss}})
            for how, loss in by.items()
        )
    )


def without_mode(launch: FakeCase) -> Run:
    error = "" if launch.defect == "predicts_without_a_mode" else "missing argument: 'mode'"
    return history((TASKS[0], "refused", {"error": error}))


@dataclass(frozen=True)
class Looked:
    """A run, and a flag that is True if the API that it looked for must be removed."""

    run: Run
    gone: bool


def removed(launch: FakeCase) -> Looked:
    error = "" if launch.defect == "is_still_there" else "module has no attribute 'estimator'"
    run = history(
        (TASKS[0], "started", {"tensorflow": "2.16"}), (TASKS[0], "refused", {"error": error})
    )
    return Looked(run, gone=True)


def aggregates(launch: FakeCase) -> Run:
    """Return two steps of two gradients each, and a gradient that is stale for the second."""
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


def collectives(launch: FakeCase) -> Run:
    """Return two operations on two sizes; one rank may have a wrong value."""
    task_events: list[tuple[str, str, Mapping[str, Any]]] = []
    for task, op, size in product(TASKS, ("all_reduce", "broadcast"), (1024, 4096)):
        wrong = None
        if launch.defect == "halves_one_value" and (task, op, size) == (
            TASKS[1],
            "broadcast",
            4096,
        ):
            wrong = {"iteration": 3, "position": 17, "got": 8.5, "wanted": 17.0}
        of = {"op": op, "bytes": size, "dtype": "float32"}
        fields = {**of, "begins_s": [0.0], "ends_s": [1.0], "wrong": wrong}
        task_events.append((task, "collective", fields))
    return history(*task_events)


def packed(launch: FakeCase) -> Run:
    """Return TensorFlow's log of two reductions.

    One is of a single number, which carries no information, and one is of four.
    """
    log, number = launch.directory / "log", 1 if launch.defect == "heeds_no_options" else 4
    line = "Collective all_reduce tensors: {} all_reduces, num_devices = 1, num_packs = {}\n"
    log.write_text(line.format(1, 1) + line.format(4, number))
    logs = {(task, 0): log for task in TASKS}
    return replace(history(**{"bytes-per-pack": 4096}), logs=logs)


def ends(launch: FakeCase) -> Run:
    """Return the ends of two programs, of which one may fail."""
    code = 1 if launch.defect == "exits_with_an_error" else 0
    exited = {"signal": None, "ended_by_harness": False}
    ends_of_tasks = [(task, "exited", {"code": code, **exited}) for task in TASKS]
    left = [(TASKS[0], "left_running", {"commands": ["sleep 1000"]})]
    return history(*ends_of_tasks, *(left if launch.defect == "leaves_a_child" else []))


def summaries(launch: FakeCase) -> Run:
    """Return the scalars of a program whose training loss falls, and may not."""
    step = 0.0 if launch.defect == "writes_one_loss" else 0.3
    losses = [{"name": "train/loss", "value": 2.3 - step * n, "at": n} for n in range(4)]
    others = [
        {"name": name, "value": 2.0 + n, "at": n}
        for n in range(4)
        for name in ("val_loss", "loss_scale", "accuracy")
    ]
    return history(*((TASKS[0], "scalar", each) for each in [*losses, *others]))


def terminated(launch: FakeCase) -> Compared:
    """Return two programs that get SIGTERM, and may ignore the signal until they are killed."""
    ignores = launch.defect == "ignores_sigterm"
    asked = [(task, "fault_started", {"fault": "sigterm"}) for task in TASKS]
    exited = {"code": None, "signal": 9 if ignores else 15, "ended_by_harness": True}
    run = history(*asked, *((task, "exited", exited) for task in TASKS))
    quick = tuple(replace(e, time_s=e.time_s / 10) for e in run.events)
    return Compared(replace(run, events=quick), run)


def restarted(launch: FakeCase) -> Compared:
    """Return a run of two workers that were restarted from a save, and one that was not."""
    defect = launch.defect

    def last(task: str, step: int) -> list[tuple[str, str, Mapping[str, Any]]]:
        digest = task if defect == "begins_with_other_weights" else "b"
        return [
            (task, "weights", state("final", step, digest)),
            (task, "finished", {"steps": step, "global_step": step}),
            (task, "exited", {"code": 0}),
        ]

    first, second = [], []
    for task in TASKS:
        first += [
            (task, "step", {"step": 1, "global_step": 2}),
            (task, "checkpoint_saved", {"path": f"/{task}/2", "global_step": 2}),
            (task, "step", {"step": 2, "global_step": 3}),
            (task, "exited", {"code": 1}),
        ]
        step = 1 if defect == "restores_an_older_step" and task != TASKS[0] else 2
        step = 0 if defect == "restores_no_optimizer" else step
        second += [
            (task, "restored", {"path": "/worker/0/2", "global_step": step}),
            (task, "weights", state("initial", step, "a")),
            (task, "step", {"step": 1, "global_step": step + 1}),
            *last(task, 5 if defect == "repeats_an_epoch" else 4),
        ]
    run = history(*first, *second)
    events = [replace(e, attempt=int(i >= len(first))) for i, e in enumerate(run.events)]
    usual = history(*(event for task in TASKS for event in last(task, 4)))
    return Compared(replace(run, events=tuple(events)), usual)


def observed(launch: FakeCase) -> Compared:
    """Return a run as an observer sees it, and the same run as it reports itself."""
    defect = launch.defect

    def one(directory: str, wrong: bool) -> Run:
        task_events: list[tuple[str, str, Mapping[str, Any]]] = []

        def has(name: str) -> bool:
            return wrong and defect == name

        for i, task in enumerate(TASKS):
            backend = "nccl" if has("takes_another_backend") else "ring"
            role = {"workers": 2, "chief": i == 0, "backend": backend, "replicas": 2}
            path = f"{directory}/{i}/ckpt-1"
            restored = {"path": path, "global_step": 2, "iterations": 2, "digest": "a"}
            slots = {"slots_digest": "t" if has("misses_a_slot") else "s"}
            first = {"step": 1, "global_step": 2 if has("counts_a_step_twice") else 3}
            loss = 2.5 if has("reports_other_metrics") else 2.0
            epoch = {"epoch": 1, "steps": 1, "metrics": {"loss": loss}, "global_step": 3}
            digest = "c" if has("digests_something_else") else "b"
            steps = 0 if has("ends_too_early") else 1
            task_events += [
                (task, "joined", {"cluster": {"worker": [f"{directory}:1", "b:1"]}, **role}),
                *([] if has("forgets_a_restore") else [(task, "restored", restored)]),
                (task, "weights", {**state("initial", 2, "a"), **slots}),
                (task, "step", first),
                (task, "epoch", epoch),
                (task, "weights", state("epoch", 3, digest)),
                (task, "weights", {**state("final", 3, digest), "slots_digest": "t"}),
                (task, "finished", {"steps": steps, "global_step": 3}),
            ]
            if not has("misses_a_save"):
                saved = {"path": f"{directory}/{i}/ckpt-2", "global_step": 3}
                task_events.append((task, "checkpoint_saved", saved))
            if has("has_a_broken_hook"):
                task_events.append((task, "hook_failed", {"hook": "fit", "error": "KeyError"}))
        return history(*task_events, **{"model-dir": directory})

    return Compared(one("/observed", wrong=True), one("/reported", wrong=False))


def strategies(launch: FakeCase) -> Run:
    """Return a run of a program of the approach mwms, with a task that makes no strategy of it."""
    made = dict.fromkeys(TASKS, "MultiWorkerMirroredStrategy")
    if launch.defect == "makes_another":
        made[TASKS[1]] = "MirroredStrategy"
    run = history(*((task, "joined", {"strategy": name}) for task, name in made.items()))
    return replace(run, trainer=replace(WORKERS, like="keras_multi_worker_mirrored"))


def formats(launch: FakeCase) -> Saved:
    """Return a run of an approach that exports, and the formats that it saved in."""
    found = formats_of(launch.trainer)
    return Saved(history(), tuple(found[:-1] if launch.defect == "exports_nothing" else found))


def test_set(launch: FakeCase) -> Run:
    """Return an evaluation of a model whose outputs are its biases, whatever the image is."""
    biases, labels = np.arange(10) / 10, np.arange(9)
    data = launch.directory / "data.npz"
    np.savez(data, x_test=np.zeros((len(labels), 28, 28), np.uint8), y_test=labels)
    npz = dumped(launch, "final", np.zeros((784, 10)), biases)
    if launch.defect == "evaluates_one_half":
        labels = labels[:5]
    loss = float(np.log(np.exp(biases).sum()) - biases[labels].mean())
    return history(
        (TASKS[0], "weights", {**state("final", 9, "a"), "npz": npz}),
        (TASKS[0], "evaluated", {"metrics": {"loss": loss, "accuracy": 0.0}}),
        data=str(data),
    )


def validated(launch: FakeCase) -> Run:
    loss = 2.5 if launch.defect == "evaluates_other_weights" else 2.0
    return history(
        (TASKS[0], "epoch", {"metrics": {"loss": 3.0, "val_loss": 2.0}}),
        (TASKS[0], "evaluated", {"metrics": {"loss": loss}}),
    )


def means(launch: FakeCase) -> Run:
    """Return two epochs of two steps each, in which the second worker has the larger losses."""
    events: list[tuple[str, str, Mapping[str, Any]]] = []
    for epoch, losses in enumerate(((4.0, 3.0), (2.0, 1.0))):
        for step, loss in enumerate(losses, 2 * epoch + 1):
            for number, task in enumerate(TASKS):
                fields = {"global_step": step, "loss": loss + number, "examples": 8}
                events.append((task, "step", fields))
        mean = losses[-1] if launch.defect == "reports_its_last_step" else sum(losses) / 2
        fields = {"epoch": epoch + 1, "steps": 2, "metrics": {"loss": mean + 0.5}}
        events += [(task, "epoch", fields) for task in TASKS]
    return history(*events)


def metrics_of_epochs(launch: FakeCase) -> Compared:
    def side(*accuracies: float) -> Run:
        return history(
            *(
                (task, "epoch", {"metrics": {"loss": 2.0, "accuracy": accuracy}})
                for accuracy in accuracies
                for task in TASKS
            )
        )

    second = 0.4 if launch.defect != "includes_the_epoch_before" else 0.3
    return Compared(side(0.2, second), side(0.2, 0.4))


def passes(launch: FakeCase) -> Run:
    orders = [[3, 1], [0, 2]], [[2, 0], [1, 3]]
    if launch.defect == "repeats_its_order":
        orders = orders[0], orders[0]
    return history(
        *(
            (task, "input", {"global_step": number, "ids": ids})
            for number, order in enumerate(orders)
            for task, ids in zip(TASKS, order, strict=True)
        ),
        examples=4,
    )


def apart(launch: FakeCase) -> Run:
    second = [0, 1, 2] if launch.defect == "has_the_data_of_a_peer" else [2, 1, 0]
    return history((TASKS[0], "input", {"ids": [0, 1, 2]}), (TASKS[1], "input", {"ids": second}))


def second_run(launch: FakeCase) -> Continued:
    def run(first: int) -> Run:
        return history(*((task, "input", {"ids": [first, i]}) for i, task in enumerate(TASKS)))

    return Continued(run(5), run(5 if launch.defect == "begins_with_the_first_data" else 6))


def adam(launch: FakeCase) -> Run:
    """Return one step of Adam, which moves each weight with a gradient by the learning rate.

    One pixel is white, and the outputs were equal: all gradients are far from 0.
    """
    data, images = launch.directory / "data.npz", np.zeros((4, 28, 28), np.uint8)
    images[:, 0, 0] = 255
    np.savez(data, x_train=images, y_train=np.zeros(4, np.int64))
    moved = np.where(np.arange(10) == 0, 0.5, -0.5)
    if launch.defect == "takes_the_gradient":
        moved = np.where(np.arange(10) == 0, 0.45, -0.05)
    events = []
    for when, row in (("initial", np.zeros(10)), ("epoch", moved)):
        npz = dumped(launch, when, np.vstack([row, np.zeros((783, 10))]), row)
        fields = {**state(when, 1, "a"), "npz": npz}
        events += [(task, "weights", fields) for task in TASKS]
    events += [(task, "input", {"global_step": 1, "ids": [i]}) for i, task in enumerate(TASKS)]
    return history(*events, data=str(data), **{"learning-rate": 0.5})


def rest(launch: FakeCase) -> Continued:
    def run(first: int, epochs: int) -> Run:
        numbers = range(first, epochs + 1)
        reports = [(task, "epoch", {"epoch": n, "steps": 5}) for n in numbers for task in TASKS]
        return history(*reports, **{"epochs": epochs, "steps-per-epoch": 5})

    return Continued(run(1, 2), run(1 if launch.defect == "begins_again" else 3, 3))


def last_save(launch: FakeCase) -> Run:
    path = launch.directory / "ckpt-1"
    path.with_suffix(".index").write_text("")
    step = 9 if launch.defect == "saves_before_the_end" else 10
    saved = {"path": str(path), "global_step": step}
    return history((TASKS[0], "checkpoint_saved", saved), **{"epochs": 2, "steps-per-epoch": 5})


def remaining(launch: FakeCase) -> Run:
    directory = launch.directory / "model"
    (directory / "ckpt").mkdir(parents=True)
    for name in ("checkpoint", "ckpt-1.index"):
        (directory / "ckpt" / name).write_text("")
    if launch.defect == "leaves_an_empty_directory":
        (directory / "temporary").mkdir()
    saved = (TASKS[0], "checkpoint_saved", {"path": str(directory / "ckpt" / "ckpt-1")})
    return history(saved, **{"model-dir": str(directory)})


def aggregated(launch: FakeCase) -> Run:
    """Return two steps with the mean gradient of two workers, of a model with one layer.

    All labels are 0, and one pixel is white. So its weights move as the biases do.
    """
    data, images = launch.directory / "data.npz", np.zeros((4, 28, 28), np.uint8)
    images[:, 0, 0] = 255
    np.savez(data, x_train=images, y_train=np.zeros(4, np.int64))
    biases, squares = np.zeros(10), np.full(10, 0.1)
    for _ in range(2):
        gradient = np.exp(2 * biases) / np.exp(2 * biases).sum() - np.eye(10)[0]
        gradient *= 2 if launch.defect == "applies_the_sum" else 1
        squares += gradient**2
        biases = biases - 0.5 * gradient / np.sqrt(squares)
    reports = []
    for when, step, array in (("initial", 0, np.zeros(10)), ("final", 2, biases)):
        npz = dumped(launch, when, np.vstack([array, np.zeros((783, 10))]), array)
        reports.append((TASKS[0], "weights", {**state(when, step, "a"), "npz": npz}))
    steps = [
        (task, name, {"global_step": step, "ids": [step, number]})
        for step in (0, 1, 2)  # the tokens that they get: the second gradient is too late
        for number, task in enumerate(TASKS)
        for name in ("step", "input")
    ]
    return history(*reports, *steps, data=str(data), **{"learning-rate": 0.5})


def resources(launch: FakeCase) -> Run:
    """Return looks at a task for 1,500 steps, of which the first quarter may grow."""
    each = {"heap_bytes": 1000, "threads": 0, "files": 0}
    each |= {"keeps_its_steps": {"heap_bytes": 200_000}}.get(launch.defect, {})
    looks = [
        {"step": step, **{name: max(0, step - 375) * amount for name, amount in each.items()}}
        for step in range(0, 1501, 125)
    ]
    return history(*((task, "resources", look) for look in looks for task in TASKS))


def _normalizing(
    launch: FakeCase, first: Sequence[float], last: Sequence[float], *more: Any, **flags: Any
) -> Run:
    """Return a step of one replica for each moving mean in `last`; the variance is larger by 1."""
    tasks, events = TASKS[: len(last)], list(more)
    loss = 2.5 if launch.defect == "makes_other_steps" and len(tasks) > 1 else 2.0
    step = {"global_step": 1, "loss": loss, "examples": 8 // len(tasks)}
    for task, *means in zip(tasks, first, last, strict=True):
        events.append((task, "step", step))
        for number, (when, mean) in enumerate(zip(("initial", "epoch"), means, strict=True)):
            features = np.full((1, 2), mean)
            files = {
                "npz": dumped(launch, when, *_layers(number)),
                "statistics": dumped(launch, f"mean-{mean}", features, features + 1),
            }
            events.append((task, "weights", {**state(when, number, "a"), **files}))
    return replace(history(*events, **flags), workers=tasks, tasks=tasks)


def _layers(largest: float) -> list[numpy_model.Array]:
    """Return the weights of two dense layers with batch normalization between them."""
    shapes = (784, 2), (2,), (2,), (2,), (2, 10), (10,)
    return [np.linspace(0, largest, int(np.prod(shape))).reshape(shape) for shape in shapes]


def normalized(launch: FakeCase) -> Moved:
    """Return a run, the run that restores its checkpoint, and one process.

    Each replica evaluates one of two black images with the label 0.
    """
    defect, own = launch.defect, (0.1, 0.3)
    if defect == "has_statistics_of_the_whole_batch":
        own = (0.2, 0.2)
    if defect == "updates_one_replica":
        own = (0.1, 0.0)
    mean = sum(own) / 2
    exported = np.full(2, own[0] if defect == "exports_one_replica" else mean)
    restored = (mean, 0.0 if defect == "restores_the_chief_only" else mean)
    _, x, gamma, beta, kernel, bias = _layers(1)
    of_batch = defect == "evaluates_with_its_batch"
    moving = [(x, 0.0) if of_batch else (each, each + 1) for each in own]
    scaled = [gamma * (x - center) / np.sqrt(square + 1e-3) + beta for center, square in moving]
    loss = numpy_model.losses(np.array(scaled) @ kernel + bias, np.zeros(2, np.int64)).mean()
    more = (
        (TASKS[0], "evaluated", {"metrics": {"loss": float(loss)}}),
        (TASKS[0], "exported", {"statistics": dumped(launch, "saved", exported, exported + 1)}),
    )
    data = data_file(launch.directory, test=2)
    run = _normalizing(launch, (0.0, 0.0), own, *more, data=data)
    then = _normalizing(launch, restored, (0.5, 0.5))
    return Moved(run, then, _normalizing(launch, (0.0,), (0.2,)))


def synchronized(launch: FakeCase) -> Compared:
    own = (0.1, 0.3) if launch.defect == "keeps_statistics_of_its_own" else (0.2, 0.2)
    run = _normalizing(launch, (0.0, 0.0), own)
    return Compared(run, _normalizing(launch, (0.0,), (0.2,)))


def dropped(launch: FakeCase) -> Run:
    """Return the masks of two replicas of each worker, after each of two epochs."""
    events = []
    for epoch, (number, task) in product((1, 2), enumerate(TASKS)):
        first = 4 * epoch if launch.defect != "repeats_its_masks" else 4
        first += 2 * number if launch.defect != "draws_as_its_peer" else 0
        kept = 1.0 if launch.defect == "scales_nothing" else 2.0
        masks = kept * np.unpackbits(np.array([[first], [first + 1]], np.uint8), axis=1)
        statistics = dumped(launch, f"{epoch}-{number}", masks)
        events.append((task, "weights", {**state("epoch", epoch, "a"), "statistics": statistics}))
    return history(*events)


# check -> the history that it reads, and the defect with which the check fails.
MADE_UP: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "files_sharded": (files, "reads_a_peers_file"),
    "too_few_files_refused": (few_files, "does_not_say_why"),
    "outside_scope_is_not_synchronized": (outside_scope, "distributes_it_all_the_same"),
    "inside_scope_is_synchronized": (inside_scope, "drifts_apart"),
    "program_keeps_its_signal_handler": (signal_handler, "replaces_the_handler"),
    "returning_chief_keeps_the_model": (chief_back, "restores_a_checkpoint"),
    "promise_is_kept": (reproduction, "observes_a_deviation"),
    "local_server_answers": (local_server, "answers_only_itself"),
    "session_keeps_running": (many_runs, "has_a_run_that_fails"),
    "fresh_gradients_are_averaged": (aggregates, "adds_them_up"),
    "model_checkpoint_does_not_resume": (model_checkpoint, "resumes_after_all"),
    "shared_backup_collides": (shared_backup, "keeps_the_backup"),
    "separate_backup_resumes": (separate_backup, "loses_the_backup"),
    "side_evaluator_agrees": (side_evaluator, "evaluates_something_else"),
    "assigned_is_read": (read_back, "reads_what_was"),
    "own_share_in_every_pass": (shares, "changes_shares"),
    "workers_shuffle_differently": (shuffled, "shuffles_alike"),
    "saves_each_format": (formats, "exports_nothing"),
    "saves_first_and_last": (first_and_last, "saves_too_late"),
    "evaluates_the_latest": (evaluator, "reports_another_step"),
    "evaluates_the_test_set": (test_set, "evaluates_one_half"),
    "evaluates_as_last_validated": (validated, "evaluates_other_weights"),
    "epoch_loss_is_that_of_its_steps": (means, "reports_its_last_step"),
    "epoch_metrics_equal_large_batch": (metrics_of_epochs, "includes_the_epoch_before"),
    "each_pass_has_its_own_order": (passes, "repeats_its_order"),
    "workers_have_their_own_batches": (apart, "has_the_data_of_a_peer"),
    "second_run_has_new_batches": (second_run, "begins_with_the_first_data"),
    "nothing_else_is_left": (remaining, "leaves_an_empty_directory"),
    "nothing_grows": (resources, "keeps_its_steps"),
    "makes_adams_steps": (adam, "takes_the_gradient"),
    "second_run_makes_the_rest": (rest, "begins_again"),
    "normalizes_own_batches": (normalized, "has_statistics_of_the_whole_batch"),
    "normalizes_the_whole_batch": (synchronized, "keeps_statistics_of_its_own"),
    "evaluates_with_moving_statistics": (normalized, "evaluates_with_its_batch"),
    "restores_mean_statistics": (normalized, "restores_the_chief_only"),
    "exports_mean_statistics": (normalized, "exports_one_replica"),
    "draws_masks": (dropped, "repeats_its_masks"),
    "draws_own_masks": (dropped, "draws_as_its_peer"),
    "last_save_is_of_the_end": (last_save, "saves_before_the_end"),
    "aggregates_equal_large_batch": (aggregated, "applies_the_sum"),
    "eager_execution_is_refused": (eager, "trains_eagerly"),
    "predictions_agree": (predictions, "predicts_something_else"),
    "mode_is_required": (without_mode, "predicts_without_a_mode"),
    "api_present_or_removed": (removed, "is_still_there"),
    "collective_results_are_right": (collectives, "halves_one_value"),
    "every_task_exits_with_success": (ends, "exits_with_an_error"),
    "no_process_left_running": (ends, "leaves_a_child"),
    "losses_in_summaries_fall": (summaries, "writes_one_loss"),
    "strategy_as_recognized": (strategies, "makes_another"),
    "signal_ends_in_time": (terminated, "ignores_sigterm"),
    "tensors_are_packed": (packed, "heeds_no_options"),
    "latest_save_is_restored": (restarted, "restores_an_older_step"),
    "restarted_workers_agree": (restarted, "begins_with_other_weights"),
    "restarted_run_ends_as_usual": (restarted, "repeats_an_epoch"),
}
