"""Reports of the program itself, by training_reports.py (of reference_trainers) or tf.summary."""

import functools

from . import fit
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
            observer.results.put(mean, rows, observer.audits_input)
        return
    if observer.unreported == 0 and not observer.sees_steps:
        observer.count_steps(1, seen=False)
    observer.report_steps(*reader(loss, examples, ids))
    if observer.audits_input and ids is not None:
        observer.write_input([int(row) for part in rows_of(ids) for row in value(part)])


def repeated_step(guarded, function, observed):
    """Return a faster `observed` for a report of the step that was counted just now."""
    observer = guarded.observer

    def step(*args, **kwargs):
        later, anywhere = None, True
        is_of_step = observer.unreported == 1 and observer.has_begun
        if is_of_step and not (guarded.off or observer.audits_input or observer.coordinator):
            try:
                # What `reader` does, but it would take longer after each step of a session.
                if PLAIN.issuperset(map(type, (*args, *kwargs.values()))):
                    later = functools.partial(reported, *args, **kwargs)
                else:
                    later, anywhere = reader(*args, **kwargs)
            except Exception as error:
                guarded.handle(error)
        if later is None:
            return observed(*args, **kwargs)
        result = function(*args, **kwargs)
        try:
            observer.report_step(later, anywhere)
        except Exception as error:
            guarded.handle(error)
        return result

    return step


def reader(loss=None, examples=None, ids=None):
    """Return a function that reads these reports, and whether any thread may call it."""
    given = [
        tuple(one) if type(one) is list else one  # the program may change a list before it is read
        for one in (loss, examples, ids)
    ]
    return functools.partial(reported, *given), all(map(is_for_any_thread, given))


PLAIN = set()  # types of reported values that are no tensors and no lists


def is_for_any_thread(found):
    """Return True for a value that any thread may read; learn types of what is no tensor."""
    kind = type(found)
    if kind in PLAIN:
        return True
    if kind is list or kind is tuple:
        return all(map(is_for_any_thread, found))
    if hasattr(found, "numpy"):
        # To read one of DTensor in another thread cancels the step that runs.
        return kind.__name__ == "EagerTensor" and "CUSTOM" not in found.device
    PLAIN.add(kind)
    return True


def reported(loss=None, examples=None, ids=None):
    """Return the mean loss over all examples, and their number; None for what is not reported."""
    losses = [float(value(part)) for part in parts(loss)]
    sizes = parts(examples) if examples is not None else map(len, rows_of(ids))
    sizes = [int(value(size)) for size in sizes]
    weights = sizes if len(sizes) == len(losses) else [1] * len(losses)
    total = sum(weights)
    mean = sum(v * w for v, w in zip(losses, weights)) / total if total else None  # noqa: B905
    return {"loss": mean, "examples": sum(sizes) if sizes else None}


def rows_of(ids):
    """Return the rows of each local replica."""
    rows = parts(ids)
    if rows and not hasattr(value(rows[0]), "__len__"):
        return [rows]  # a list of numbers
    return rows


def parts(reported):
    """Return a value for each local replica: of a list, its elements."""
    if reported is None:
        return []
    return list(reported) if isinstance(reported, (list, tuple)) else [reported]


def value(reported):
    """Return the value of a tensor, or a plain value as it is."""
    return reported.numpy() if hasattr(reported, "numpy") else reported


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
