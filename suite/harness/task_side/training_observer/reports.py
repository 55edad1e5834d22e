"""Reports of the program itself, by training_reports.py (of reference_trainers) or tf.summary."""

import functools

from . import coordinator, fit
from .changes import leave_unsupported
from .functions import is_eager
from .hooks import loaded


def after_step(observer, call):
    """Add what the program reports of its last step."""
    loss, examples, ids = (
        call.argument(place, name) for place, name in enumerate(("loss", "examples", "ids"))
    )
    if observer.coordinator and observer.local.functions:  # traced, for workers to execute
        if observer.changes.probes:
            tf = loaded("tensorflow")
            mean, rows = tf.reduce_mean(tf.stack(parts(loss))), tf.concat(parts(ids), axis=0)
            if observer.audits_input and not coordinator.knows_worker():
                leave_unsupported(observer, coordinator.NO_WORKER)
            observer.results.put(mean, rows, observer.audits_input)
        return
    if observer.unreported == 0 and not observer.sees_steps:
        observer.count_steps(1, seen=False)
    rows, losses = parts(ids), parts(loss)
    if rows and not hasattr(value(rows[0]), "__len__"):
        rows = [rows]  # a list of numbers
    sizes = parts(examples) if examples is not None else [len(part) for part in rows]
    observer.report_steps(lambda: loss_and_examples(losses, sizes))
    if observer.audits_input and rows:
        observer.write_input([int(row) for part in rows for row in value(part)])


PLAIN = set()  # types of reported values that are no tensors and no lists


def repeated_step(guarded, function, observed):
    """Return a faster `observed` for a report of the step that was counted just now.

    A thread reads the report later, so there must be no list in it, which the program may change
    until then, and no tensor.
    """
    observer = guarded.observer

    def step(*args, **kwargs):
        is_of_step = observer.unreported == 1 and observer.has_begun
        if guarded.off or not is_of_step or observer.audits_input or observer.coordinator:
            return observed(*args, **kwargs)
        for found in (*args, *kwargs.values()):
            if type(found) not in PLAIN and not is_plain(found):
                return observed(*args, **kwargs)
        result = function(*args, **kwargs)
        try:
            observer.report_step(functools.partial(reported, *args, **kwargs))
        except Exception as error:
            guarded.handle(error)
        return result

    return step


def is_plain(found):
    """Return True for a reported value that is no tensor and no list; learn its type."""
    if isinstance(found, (list, tuple)) or hasattr(found, "numpy"):
        return False
    PLAIN.add(type(found))
    return True


def reported(loss=None, examples=None, ids=None):
    """Return the loss and the number of examples of a report of one replica, without tensors."""
    if examples is None and ids is not None:
        examples = len(ids)
    return {
        "loss": None if loss is None else float(loss),
        "examples": None if examples is None else int(examples),
    }


def parts(reported):
    """Return a value for each local replica: of a list, its elements."""
    if reported is None:
        return []
    return list(reported) if isinstance(reported, (list, tuple)) else [reported]


def value(reported):
    """Return the value of a tensor, or a plain value as it is."""
    return reported.numpy() if hasattr(reported, "numpy") else reported


def loss_and_examples(losses, sizes):
    """Return the mean loss over all examples, and their number; None for what is not reported."""
    sizes = [int(value(size)) for size in sizes]
    values = [float(value(loss)) for loss in losses]
    weights = sizes if len(sizes) == len(values) else [1] * len(values)
    total = sum(weights)
    mean = sum(v * w for v, w in zip(values, weights)) / total if total else None  # noqa: B905
    return {"loss": mean, "examples": sum(sizes) if sizes else None}


def after_epoch(observer, call):
    observer.report_epoch(int(call.argument(0, "number")), metrics_of(call.argument(1, "metrics")))


def after_evaluated(observer, call):
    observer.report_restores()
    metrics = metrics_of(call.argument(0, "metrics"))
    observer.write("evaluated", global_step=observer.current_step(), metrics=metrics)


def metrics_of(reported):
    return fit.numbers({name: value(number) for name, number in reported.items()})


def after_preempted(observer, call):  # noqa: ARG001 (the signature of a hook)
    observer.write("preempted", global_step=observer.current_step())


def after_scalar(observer, call):
    """Write `scalar` for a number that the program writes with tf.summary.scalar.

    Of a function that is being traced, the number is not known yet.
    """
    if not is_eager():
        return
    name, data, step = (
        call.argument(place, name) for place, name in enumerate(("name", "data", "step"))
    )
    number = float(value(data))
    where = {"at": None if step is None else int(value(step))}
    where["global_step"] = observer.current_step()
    observer.write("scalar", name=str(name), value=number, **where)
