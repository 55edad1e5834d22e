"""Servers and strategy of tutorials/distribute/parameter_server_training."""

import os

import tensorflow as tf

from reference_trainers.support import keras_support

JOBS = ("chief", "ps", "worker")
# A kernel of the document's size is split, a bias is not. Keras 3 cannot train a variable in parts.
SHARD_BYTES = 0 if keras_support.is_keras_3() else 256 << 10


def serve(role):
    """Run a worker or a parameter server until this task is killed."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a worker may start before the other servers
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
    server.join()


def connect(role):
    """Return the strategy, once all servers are up."""
    partitioner = None
    if SHARD_BYTES:
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=SHARD_BYTES, max_shards=len(role.cluster["ps"])
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
