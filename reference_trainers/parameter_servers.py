"""What trainers under ParameterServerStrategy share: the servers, shards of variables, the data.

The coordinator (the `chief` job) runs the training loop; workers and parameter servers are standard
servers that do what it sends them, and never end by themselves.
"""

import os

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
    multi_worker.tell_joined(events, role, "none", 1)
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
    return passes.flat_map(one_pass).batch(batch).map(examples_of).prefetch(tf.data.AUTOTUNE)


def tell_placed(events, model):
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


class Teller(custom_loop.Teller):
    """Events of a coordinator's loop, told for all workers; a step is a function that came back."""

    def scheduled(self, count):
        self._events.write("scheduled", steps=count)

    def executed(self, results):
        """Tell of the functions that `join` has waited for; gives what each has told."""
        workers = [int(told[4]) for told, *_ in results]
        updates = int(max(told[3] for told, *_ in results))
        by = {"worker/%d" % i: workers.count(i) for i in sorted(set(workers))}
        self._events.write("executed", steps=len(results), by=by, updates=updates)
        for told, *rows in results:
            self.steps += 1
            self.global_step += 1
            where = {"step": self.steps, "global_step": self.global_step}
            self._events.write_soon("step", loss=float(told[0]), examples=int(told[2]), **where)
            if self._args.audit_input:
                where["worker"] = "worker/%d" % told[4]
                self._events.write("input", ids=rows[0].tolist(), **where)
        return [told for told, *_ in results]
