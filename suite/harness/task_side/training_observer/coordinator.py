"""Steps under a ClusterCoordinator: training functions that were scheduled, by executing worker."""

import threading
import uuid

from .functions import trains
from .hooks import loaded

UNKNOWN = -1  # the worker of a step, where a function cannot ask which one executes it


def executing_worker():
    """Return the number of the worker that executes the function: an integer or a tensor [].

    Before TensorFlow 2.13 it is UNKNOWN.
    """
    ask = getattr(
        loaded("tensorflow").distribute.coordinator, "experimental_get_current_worker_index", None
    )
    return UNKNOWN if ask is None else ask()


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


class Results(object):
    """A queue of what training functions report, on the first parameter server.

    It adds ops to these functions, so it is for reference trainers only. Their return values would
    not do: a coordinator that keeps them copies each before the worker gets its next function. The
    results of a step are here even if its worker died afterwards, as are those of the step that
    replaced it.
    """

    def __init__(self):
        self._queue = None
        self._audits = False

    def put(self, loss, ids, audits):
        """Let the function that is being traced report its step.

        `loss`: float [], `ids`: whole numbers [batch]. With `audits` the ids and the worker are
        reported as well.
        """
        tf = loaded("tensorflow")
        values = [tf.stack([tf.cast(loss, tf.float64), tf.cast(tf.size(ids), tf.float64)])]
        if audits:
            # The queue has no place for a tensor of which the length is unknown.
            listed = tf.io.serialize_tensor(tf.cast(ids, tf.int64))
            values += [listed, tf.cast(executing_worker(), tf.int64)]
        if self._queue is None:
            self._audits = audits
            with tf.init_scope():
                self._queue = self._new(tf, values)
        self._queue.enqueue(values)

    @staticmethod
    def _new(tf, values):
        types, shapes = [v.dtype for v in values], [v.shape for v in values]
        # A server outlives its coordinator, and a queue of the same name on it is the same queue.
        # tf.queue.FIFOQueue ignores `shared_name` in eager mode and uses a counter instead.
        name = uuid.uuid4().hex
        with tf.device("/job:ps/task:0/device:CPU:0"):
            queue = tf.raw_ops.FIFOQueueV2(component_types=types, shapes=shapes, shared_name=name)
        return tf.queue.QueueBase(types, shapes, None, queue)

    def take(self):
        """Return (loss and examples, ids, worker) of each step since the last call.

        The last two are None without an audit. Call it where no function runs.
        """
        if self._queue is None:
            return []
        columns = self._queue.dequeue_many(self._queue.size())
        rows, *audited = [c.numpy().tolist() for c in (columns if self._audits else [columns])]
        numbers = [{"loss": loss, "examples": int(size)} for loss, size in rows]
        if not audited:
            return [(of_step, None, None) for of_step in numbers]
        parse, (texts, workers) = loaded("tensorflow").io.parse_tensor, audited
        ids = [parse(text, "int64").numpy().tolist() for text in texts]
        return list(zip(numbers, ids, workers))  # noqa: B905 (Python 3.8)


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
    by, results = observer.executed.take(), observer.results.take()
    steps = len(results) or sum(by.values())
    if not steps:
        return
    if observer.training.counter is not None:
        observer.global_step = observer.training.iterations() - steps
    observer.write("executed", steps=steps, by=by, updates=observer.global_step + steps)
    for numbers, ids, worker in results:
        observer.count_steps(1)
        observer.report_steps(lambda numbers=numbers: numbers)
        if ids is not None:
            observer.write_input(ids, worker=None if worker == UNKNOWN else "worker/%d" % worker)
    observer.count_steps(steps - len(results))
    observer.end_step()
