"""What trainers under ParameterServerStrategy share: the servers, shards of variables, the data.

The coordinator (the `chief` job) runs the training loop; workers and parameter servers are standard
servers that do what it sends them, and never end by themselves.
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

# What the coordinator gets when a parameter server is gone; of workers it hears nothing.
PEER_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError)


def main(name, document, run):
    """Be the task that TF_CONFIG says: a server, or the coordinator, for which `run` is called.

    It gets the flags, the role, the events and the data.
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
    """The flags of such a trainer."""
    # Keras 3 cannot train a sharded variable: it asks it for a `handle`, which each shard has.
    shard_bytes = 0 if keras_support.is_keras_3() else SHARD_BYTES
    return workload.parser(name, document, BY_NAME[name].flags, shard_bytes=shard_bytes)


def check(role):
    """BadInput for a cluster in which this strategy cannot train."""
    missing = [job for job in JOBS if not role.cluster.get(job)]
    if missing:
        raise workload.BadInput(
            "TF_CONFIG: the cluster needs a chief, ps and workers; it has no %s"
            % " and no ".join(missing)
        )


def serve(role, events):
    """Be a worker or a parameter server until whoever started this task ends it."""
    # So that a worker does not fail when a parameter server is up a little later.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    config = tf.compat.v1.ConfigProto()
    # A worker with fewer threads may wait for itself.
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
    """The strategy, once all servers are up."""
    partitioner = None
    if args.shard_bytes:
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=args.shard_bytes, max_shards=len(role.cluster["ps"])
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def worker_dataset(data, args, batch, first_step):
    """Endless batches (x, y, row of x_train, worker int64 []) for the worker that calls this.

    Who asks in each step which worker it is has the coordinator send it the answer each time.
    Each worker shuffles all the data in an order of its own, which depends on the seed, on the
    step at which this run begins, on the worker and on the pass over the data: workers are not
    kept from seeing one example twice, but neither they nor a resumed run repeat each other.
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
    # The rows never end, so that none are dropped: it only makes their number known beforehand.
    batches = passes.flat_map(one_pass).batch(batch, drop_remainder=True)
    return batches.map(examples_of).prefetch(tf.data.AUTOTUNE)


def report_placed(events, model):
    """Write `placed`: the parameter server of each variable, or of each shard of one."""
    if events.enabled:
        devices = {}
        for variable in model.trainable_variables:
            value = variable.value if keras_support.is_keras_3() else variable
            # Keras 3 has a sharded variable as one, the others have its shards.
            for part in getattr(value, "variables", [value]):
                devices[part.name] = part.device
        events.write("placed", variables=devices, ops={})


def ending_at_lost_servers(events):
    """`workload.ending_at` for what is raised when a parameter server is gone."""
    return workload.ending_at(PEER_ERRORS, events)


class Results(object):
    """What steps under a coordinator tell, kept on the first parameter server until it is taken.

    Not returned by the scheduled functions: a coordinator that keeps what `schedule` gives copies
    it before the worker gets its next function, which waits until then. What a step of a worker
    told that then died is here as well, and that of the step made in its place.

    A row is float64 [loss, accuracy, examples, updates so far, worker]; with --audit-input there
    are int64 [`batch`] rows of x_train beside it.
    """

    def __init__(self, args, batch):
        self._audited = args.audit_input
        shapes = [[5], [batch]] if self._audited else [[5]]
        types = [tf.float64, tf.int64][: len(shapes)]
        # A server outlives its coordinator, and a queue of the same name on it is the same queue.
        # tf.queue.FIFOQueue ignores `shared_name` when it runs eagerly, and counts instead.
        name = uuid.uuid4().hex
        with tf.device("/job:ps/task:0/device:CPU:0"):
            queue = tf.raw_ops.FIFOQueueV2(component_types=types, shapes=shapes, shared_name=name)
        self._queue = tf.queue.QueueBase(types, shapes, None, queue)

    def put(self, told, rows):
        """In a step, of whichever worker."""
        self._queue.enqueue((told, rows) if self._audited else told)

    def take(self):
        """What steps have told since the last time: (told [steps, 5], rows [steps, batch] or None).

        By the coordinator, after `join`.
        """
        taken = self._queue.dequeue_many(self._queue.size())
        if not self._audited:
            return taken.numpy(), None
        told, rows = taken
        return told.numpy(), rows.numpy()


class EventReporter(custom_loop.EventReporter):
    """Events of a coordinator's loop, told for all workers; a step is a function that came back."""

    def scheduled(self, count):
        self._events.write("scheduled", steps=count)

    def executed(self, told, rows):
        """Tell of the functions that `join` has waited for, by what is in Results; gives `told`."""
        workers = told[:, 4].astype(int).tolist()
        updates = int(told[:, 3].max())
        by = {"worker/%d" % i: workers.count(i) for i in sorted(set(workers))}
        self._events.write("executed", steps=len(told), by=by, updates=updates)
        for number, (loss, _, examples, _, worker) in enumerate(told.tolist()):
            self.steps += 1
            self.global_step += 1
            where = {"step": self.steps, "global_step": self.global_step}
            self._events.write_soon("step", loss=loss, examples=int(examples), **where)
            if rows is not None:
                where["worker"] = "worker/%d" % worker
                self._events.write("input", ids=rows[number].tolist(), **where)
        return told
