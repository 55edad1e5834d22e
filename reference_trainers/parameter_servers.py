"""Shared code of trainers under ParameterServerStrategy: servers, variable shards, data.

The coordinator (the `chief` job) runs the training loop. Workers and parameter servers are standard
servers that execute its requests and never exit by themselves.
"""

import os
import uuid

import numpy as np
import tensorflow as tf

from reference_trainers import BY_NAME, custom_loop, keras_support, multi_worker, roles, workload
from reference_trainers.events import EventWriter

JOBS = ("chief", "ps", "worker")
# A kernel of the document's size is split, a bias is not.
SHARD_BYTES = 256 << 10

# Errors on the coordinator when a parameter server is gone. The loss of a worker raises none.
PEER_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError)


def main(name, document, run):
    """Run the task that TF_CONFIG names: a server, or the coordinator, which calls `run`.

    `run` gets the flags, the role, the events and the data.
    """
    args = parser(name, document).parse_args()
    role = roles.role_from_tf_config(JOBS)
    check(role)
    events = EventWriter(role.task)
    events.write(
        "started", pid=os.getpid(), trainer=name, seed=args.seed, **keras_support.versions()
    )
    if role.task.split("/")[0] != "chief":
        serve(role, events)
    data = workload.load_data(args.data)
    with ending_at_lost_servers(events):
        run(args, role, events, data)


def parser(name, document):
    """Return the flags of such a trainer."""
    # Keras 3 cannot train a sharded variable: it reads the `handle` of the variable, but only a
    # shard has one.
    shard_bytes = 0 if keras_support.is_keras_3() else SHARD_BYTES
    return workload.parser(name, document, BY_NAME[name].flags, shard_bytes=shard_bytes)


def check(role):
    """Raise BadInput for a cluster in which this strategy cannot train."""
    missing = [job for job in JOBS if not role.cluster.get(job)]
    if missing:
        raise workload.BadInput(
            "TF_CONFIG: the cluster needs a chief, ps and workers; it has no %s"
            % " and no ".join(missing)
        )


def serve(role, events):
    """Run a worker or a parameter server until this task is killed."""
    # So that a worker does not fail if a parameter server starts a little later.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    config = tf.compat.v1.ConfigProto()
    # A worker with fewer threads may deadlock.
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, len(role.workers) + 1)
    job, index = role.task.split("/")
    server = tf.distribute.Server(
        tf.train.ClusterSpec(role.cluster),
        job_name=job,
        task_index=int(index),
        protocol="grpc",
        config=config,
    )
    multi_worker.report_joined(events, role, "none", 1)
    server.join()


def connect(role, args):
    """Return the strategy, once all servers are up."""
    partitioner = None
    if args.shard_bytes:
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=args.shard_bytes, max_shards=len(role.cluster["ps"])
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def worker_dataset(data, args, batch, first_step):
    """Return endless batches (x, y, row of x_train, worker int64 []) for the calling worker.

    The worker index is part of the data, because reading it in each step would make the coordinator
    send it each time. Each worker shuffles all the data in its own order, which depends on the
    seed, on the first step of this run, on the worker and on the pass over the data. Two workers
    may see the same example, but neither workers nor a resumed run repeat each other's order.
    """
    stateless = tf.random.experimental  # pyright: ignore[reportAttributeAccessIssue]
    examples = len(data.x_train)
    images, labels = tf.constant(data.x_train), tf.constant(data.y_train)
    worker = tf.distribute.coordinator.experimental_get_current_worker_index()
    seed = tf.constant([args.seed, first_step], tf.int64)
    worker = tf.cast(worker, tf.int64)
    seed = stateless.stateless_fold_in(seed, worker)

    def one_pass(number):
        own = stateless.stateless_fold_in(seed, number)
        rows = stateless.stateless_shuffle(tf.range(examples, dtype=tf.int64), own)
        return tf.data.Dataset.from_tensor_slices(rows)

    def examples_of(rows):
        pixels = tf.cast(tf.gather(images, rows), tf.float32) / 255.0
        return pixels, tf.gather(labels, rows), rows, worker

    passes = tf.data.Dataset.range(np.iinfo(np.int64).max)
    # The rows never end, so drop_remainder drops none. It only makes the batch size static.
    batches = passes.flat_map(one_pass).batch(batch, drop_remainder=True)
    return batches.map(examples_of).prefetch(tf.data.AUTOTUNE)


def report_placed(events, model):
    """Write `placed`: the parameter server of each variable or variable shard."""
    if events.enabled:
        devices = {}
        for variable in model.trainable_variables:
            value = variable.value if keras_support.is_keras_3() else variable
            # Keras 3 has a sharded variable as one object, the other flavors have its shards.
            for part in getattr(value, "variables", [value]):
                devices[part.name] = part.device
        events.write("placed", variables=devices, ops={})


def ending_at_lost_servers(events):
    """Return `workload.ending_at` for the errors of a lost parameter server."""
    return workload.ending_at(PEER_ERRORS, events)


class Results(object):
    """A queue of step results on the first parameter server, for steps under a coordinator.

    The scheduled functions do not return the results. A coordinator that keeps the return values of
    `schedule` copies each before the worker gets its next function, which delays that function. The
    results of a step are here even if its worker died afterwards, as are those of the step that
    replaced it.

    A row is float64 [loss, accuracy, examples, updates so far, worker]. With --audit-input it is
    paired with int64 [`batch`] rows of x_train.
    """

    def __init__(self, args, batch):
        self._audited = args.audit_input
        shapes = [[5], [batch]] if self._audited else [[5]]
        types = [tf.float64, tf.int64][: len(shapes)]
        # A server outlives its coordinator, and a queue of the same name on it is the same queue.
        # tf.queue.FIFOQueue ignores `shared_name` in eager mode and uses a counter instead.
        name = uuid.uuid4().hex
        with tf.device("/job:ps/task:0/device:CPU:0"):
            queue = tf.raw_ops.FIFOQueueV2(component_types=types, shapes=shapes, shared_name=name)
        self._queue = tf.queue.QueueBase(types, shapes, None, queue)

    def put(self, results, rows):
        """Enqueue the results of a step, from any worker."""
        self._queue.enqueue((results, rows) if self._audited else results)

    def take(self):
        """Return (results [steps, 5], rows [steps, batch] or None) since the last call.

        The coordinator calls it after `join`.
        """
        columns = self._queue.dequeue_many(self._queue.size())
        if not self._audited:
            return columns.numpy(), None
        results, rows = columns
        return results.numpy(), rows.numpy()


class EventReporter(custom_loop.EventReporter):
    """Write the events of a coordinator's loop for all workers; a step is a completed function."""

    def scheduled(self, count):
        self._events.write("scheduled", steps=count)

    def executed(self, results, rows):
        """Write the events of the functions that `join` waited for; return `results`."""
        workers = results[:, 4].astype(int).tolist()
        updates = int(results[:, 3].max())
        by = {"worker/%d" % i: workers.count(i) for i in sorted(set(workers))}
        self._events.write("executed", steps=len(results), by=by, updates=updates)
        for number, (loss, _, examples, _, worker) in enumerate(results.tolist()):
            self.steps += 1
            self.global_step += 1
            where = {"step": self.steps, "global_step": self.global_step}
            self._events.write_soon("step", loss=loss, examples=int(examples), **where)
            if rows is not None:
                where["worker"] = "worker/%d" % worker
                self._events.write("input", ids=rows[number].tolist(), **where)
        return results
