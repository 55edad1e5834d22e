"""Asynchronous workers and parameter servers: ParameterServerStrategy with Keras Model.fit.

Implements the part on Model.fit of
https://www.tensorflow.org/tutorials/distribute/parameter_server_training, but a restarted run
resumes from its backup, and each test example counts once. Start each task with its own type and
index; the workers and the parameter servers run until they are killed:

  TF_CONFIG='{"cluster": {"chief": ["host1:2222"], "ps": ["host2:2222"], "worker": ["host3:2222"]},
              "task": {"type": "worker", "index": 0}}' \
      python keras_parameter_server.py --model-dir /shared/model
"""

import argparse
import inspect
import os

import numpy as np
import tensorflow as tf

FLAGS = argparse.ArgumentParser(usage="%(prog)s [flags] (see --help)")
FLAGS.add_argument("--model-dir", default="", help="checkpoints; a restarted run resumes")
FLAGS.add_argument("--data", default="~/.keras/datasets/mnist.npz", help="as Keras' mnist.npz")
FLAGS.add_argument("--epochs", type=int, default=3)
FLAGS.add_argument("--steps-per-epoch", type=int, default=70, help="of all workers together")
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a worker in a step")
FLAGS.add_argument("--seed", type=int, default=1, help="of the initial weights")
FLAGS.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="sgd")
FLAGS.add_argument("--learning-rate", type=float, default=0.001)
FLAGS.add_argument("--evaluate", action="store_true", help="after each epoch, and at the end")
# Keras 3 cannot train a variable in parts: it reads the `handle`, which only a part has.
SHARD_BYTES = 1 << 40 if hasattr(tf.keras, "ops") else 256 << 10
FLAGS.add_argument("--shard-bytes", type=int, default=SHARD_BYTES, help="least part of a variable")


def read_role():
    """Return the resolver of TF_CONFIG; its cluster has a chief, workers and parameter servers."""
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        resolver.cluster_spec().task_address(resolver.task_type, resolver.task_id)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        FLAGS.error(f"TF_CONFIG has no cluster with this task: {error!r}")
    if missing := {"chief", "ps", "worker"}.difference(jobs):
        FLAGS.error(f"TF_CONFIG: the cluster has no {' and no '.join(sorted(missing))}")
    return resolver


def serve(resolver):
    """Run a worker or a parameter server until this task is killed."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a worker may start before the other servers
    cluster, config = resolver.cluster_spec(), tf.compat.v1.ConfigProto()
    # A worker with fewer threads may deadlock.
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, cluster.num_tasks("worker") + 1)
    task = {"job_name": resolver.task_type, "task_index": resolver.task_id}
    tf.distribute.Server(cluster, **task, protocol="grpc", config=config).join()


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


def scaled(images, labels):
    return tf.cast(images, tf.float32) / 255, labels


def training_batches(rows, images, labels):
    """Return batches of images, float32 [batch, 28, 28] from 0 to 1, and labels of these rows."""
    images, labels = tf.constant(images), tf.constant(labels)
    return rows.map(lambda row: scaled(tf.gather(images, row), tf.gather(labels, row)))


def build_model():
    layers = tf.keras.layers
    image = [tf.keras.Input(shape=(28, 28)), layers.Reshape((28, 28, 1))]
    features = [layers.Conv2D(32, 3, activation="relu"), layers.Flatten()]
    classes = [layers.Dense(128, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential(image + features + classes)


def restore(checkpoint, path):
    try:
        checkpoint.restore(path).assert_existing_objects_matched()
    except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
        FLAGS.error(f"{path} cannot be restored: {' '.join(str(error).split())}")


class Backup(tf.keras.callbacks.BackupAndRestore):
    """Restore a backup, or say in one line that it is damaged."""

    def on_train_begin(self, logs=None):
        try:
            super().on_train_begin(logs)
        except (tf.errors.OpError, OSError, ValueError, LookupError) as error:
            FLAGS.error(f"--model-dir: its backup cannot be restored: {error!r}")


def main():
    args = FLAGS.parse_args()
    resolver = read_role()
    if resolver.task_type != "chief":
        serve(resolver)
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    cluster = resolver.cluster_spec()
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        args.shard_bytes, max_shards=cluster.num_tasks("ps")
    )
    # Waits until all servers are up.
    strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
    tf.keras.utils.set_random_seed(args.seed)
    # Before TensorFlow 2.13 each worker evaluates the test set from its start, as far as it gets.
    divides = "pss_evaluation_shards" in inspect.signature(tf.keras.Model.compile).parameters
    how = {"pss_evaluation_shards": 1} if divides else {}
    share = max(1, args.steps_per_epoch // cluster.num_tasks("worker"))
    with strategy.scope():
        model = build_model()
        rate, momentum = args.learning_rate, 0.9 if args.optimizer == "momentum" else 0.0
        keras = tf.keras.optimizers
        optimizer = keras.Adam(rate) if args.optimizer == "adam" else keras.SGD(rate, momentum)
        optimizer.build(model.trainable_variables)  # so that a checkpoint restores its slots
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        how["steps_per_execution"] = min(10, share)  # the document has 10
        model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **how)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    callbacks, directory = [], os.path.join(args.model_dir, "ckpt")
    if args.model_dir:
        if last := tf.train.latest_checkpoint(directory):
            restore(checkpoint, last)  # of a run that has ended
        # Restores the backup of a run that was interrupted. Keras 3 overwrites the last backup.
        keeps_two = "double_checkpoint" in inspect.signature(Backup).parameters  # since Keras 3.7
        how = {"double_checkpoint": True} if keeps_two else {}
        backup = os.path.join(args.model_dir, "backup")
        callbacks += [Backup(backup, save_freq="epoch", **how)]

    def rows_of_worker(context):
        """Return batches of the calling worker: all rows, in a random order of its own."""
        # Without a seed. Those of tf.random would be the same on each worker.
        none, zero = tf.zeros([0], tf.int32), tf.zeros([], tf.int64)
        order = tf.raw_ops.RandomUniformInt(shape=none, minval=zero, maxval=zero + tf.int64.max)
        rows = tf.data.Dataset.range(len(x_train)).shuffle(len(x_train), order).repeat()
        batch = args.batch_size * strategy.num_replicas_in_sync
        return rows.batch(context.get_per_replica_batch_size(batch), drop_remainder=True)

    def dataset_of_worker(context):
        return training_batches(rows_of_worker(context), x_train, y_train).prefetch(2)

    test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(256).map(scaled)
    test_steps = None if divides else len(test)  # fit fails where a worker meets the end
    model.fit(
        tf.keras.utils.experimental.DatasetCreator(dataset_of_worker),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=callbacks,
        validation_data=test if args.evaluate else None,
        validation_steps=test_steps if args.evaluate else None,
        verbose=2,
    )
    if args.evaluate:
        metrics = model.evaluate(test, steps=test_steps, return_dict=True, verbose=0)
        print({name: float(value) for name, value in metrics.items()}, flush=True)
    if args.model_dir:
        tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1).save()


if __name__ == "__main__":
    main()
