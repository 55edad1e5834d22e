"""Shared code of trainers under MultiWorkerMirroredStrategy: sharding, save paths, lost peers."""

import contextlib
import os
import sys

import tensorflow as tf

from reference_trainers.support import peer_errors, workload


def leave_unsupported(events, reason):
    """End with exit code 77.

    Every worker reaches the same result and exits too, so no notice to the peers is needed.
    """
    events.write("unsupported", reason=reason)
    print(reason, file=sys.stderr, flush=True)
    os._exit(workload.UNSUPPORTED)


def report_joined(events, role, backend, replicas):
    """Write `joined`: the cluster has formed, with the membership that this task sees."""
    events.write(
        "joined",
        cluster=role.cluster,
        workers=len(role.workers),
        chief=role.chief,
        backend=backend,
        replicas=replicas,
    )


def sharded(dataset, policy):
    """Return the data set with the AutoShardPolicy of that name."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, policy.upper()
    )
    return dataset.with_options(options)


def write_path(path, role):
    """Return the path to write to: `path` for the chief, a path next to it for others.

    All workers must save, because reading some variables takes a collective of all workers, but two
    workers must never write to the same path.
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
    """Run a last all-reduce, because peers take a worker that exits early for a failed one."""

    @tf.function
    def meet():
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)

    meet().numpy()


@contextlib.contextmanager
def reporting_lost_peers(events, role):
    """Write `peer_lost` for an error that a lost worker causes, and let the error end the task."""
    try:
        yield
    except tf.errors.OpError as error:
        lost = peer_errors.is_from_peer_loss(error)
        if lost and len(role.workers) > 1:
            events.write("peer_lost", error=workload.reason(error))
        raise
