"""Steps under a ClusterCoordinator: training functions that were scheduled, by executing worker."""

import threading

from .functions import trains


class Executed(object):
    """Counts of training functions that workers have executed since the last report."""

    def __init__(self):
        self._lock, self._by = threading.Lock(), {}

    def add(self, worker):
        with self._lock:
            self._by[worker] = self._by.get(worker, 0) + 1

    def take(self):
        """Return worker -> count since the last call."""
        with self._lock:
            found, self._by = self._by, {}
        return found


def is_training_function(observer, function):
    """Return True for a tf.function of the program, outside of `fit`, whose calls are steps."""
    if observer.local.fits or not hasattr(function, "get_concrete_function"):
        return False
    update = observer.functions.updates.get(function)
    return update is not None and trains(observer, update)


def after_closure_created(observer, call):
    """Note whether a scheduled function trains; it was traced just now, or before."""
    closure = call.args[0]
    closure.observed_worker = None
    closure.observed_trains = is_training_function(observer, call.argument(1, "function"))


def after_schedule(observer, call):
    """Count a scheduled step; of its own call, because workers only get closures."""
    if is_training_function(observer, call.argument(1, "fn")):
        observer.join_alone()
        observer.events.write_soon("scheduled", steps=1)


def after_execute(observer, call):  # noqa: ARG001 (the signature of a hook)
    closure, worker = call.args[0], call.argument(1, "worker")
    closure.observed_worker = worker.worker_index


def after_process(observer, call):
    """Count a function whose execution has ended, without an error that repeats it."""
    closure = call.argument(1, "closure")
    if getattr(closure, "observed_trains", False) and closure.observed_worker is not None:
        observer.executed.add("worker/%d" % closure.observed_worker)
        closure.observed_worker = None


def after_join(observer, call):  # noqa: ARG001
    report_executed(observer)


def report_executed(observer):
    """Write `executed` and the steps since the last call. Call it where no function runs."""
    by = observer.executed.take()
    steps = sum(by.values())
    if not steps:
        return
    observer.write("executed", steps=steps, by=by, updates=observer.global_step + steps)
    observer.count_steps(steps)
    observer.end_step()
