"""What trainers under MultiWorkerMirroredStrategy share: shards, paths to save to, lost peers."""

import contextlib
import os
import sys

import tensorflow as tf

from reference_trainers import peer_errors, workload


def leave_unsupported(events, reason):
    """End with exit code 77: the others find the same and leave as well, nobody has to be told."""
    events.write("unsupported", reason=reason)
    print(reason, file=sys.stderr, flush=True)
    os._exit(workload.UNSUPPORTED)


def need_replicas(events, role, strategy, devices):
    """End with exit code 77 where the strategy has not taken so many devices of each worker."""
    wanted, found = devices * len(role.workers), strategy.num_replicas_in_sync
    if found != wanted:
        reason = (
            "MultiWorkerMirroredStrategy has %d replicas of %d workers with %d devices each: "
            "of CPUs it takes one a worker" % (found, len(role.workers), devices)
        )
        leave_unsupported(events, reason)


def report_joined(events, role, backend, replicas):
    """Write `joined`: the cluster has formed, and this is what it looks like from here."""
    events.write(
        "joined",
        cluster=role.cluster,
        workers=len(role.workers),
        chief=role.chief,
        backend=backend,
        replicas=replicas,
    )


def sharded(dataset, policy):
    """The data set with the AutoShardPolicy of that name."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, policy.upper()
    )
    return dataset.with_options(options)


def write_path(path, role):
    """Where this task writes what belongs to `path`: the chief there, others beside it.

    All workers must save, since reading some variables takes a collective of all; but two of them
    must never write to one place.
    """
    if role.chief:
        return path
    directory, base = os.path.split(path.rstrip("/"))
    return os.path.join(directory, "workertemp_%d" % role.index, base)


def remove_temporary(path, role):
    """Remove what a worker other than the chief wrote to `write_path`."""
    if not role.chief:
        tf.io.gfile.rmtree(os.path.dirname(path))


def wait_for_all(strategy):
    """One last all-reduce: a worker that leaves early looks to the others like one that died."""

    @tf.function
    def meet():
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)

    meet().numpy()


@contextlib.contextmanager
def telling_of_lost_peers(events, role):
    """Write `peer_lost` for an error that a lost worker causes, and let the error end the task."""
    try:
        yield
    except tf.errors.OpError as error:
        lost = peer_errors.is_peer_loss(type(error).__name__, str(error))
        if lost and len(role.workers) > 1:
            events.write("peer_lost", error=workload.reason(error))
        raise
