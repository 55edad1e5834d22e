"""N synchronous workers: MultiWorkerMirroredStrategy with Keras Model.fit.

Implements https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras, but the
checkpoint includes the optimizer, and a restarted run continues with the data that it has not seen.
Start each worker with its own index:

    TF_CONFIG='{"cluster": {"worker": ["host1:2222", "host2:2222"]},
                "task": {"type": "worker", "index": 0}}' \
        python keras_multi_worker_mirrored.py --model-dir /shared/model
"""

import argparse
import functools
import inspect
import os

import numpy as np
import tensorflow as tf

FLAGS = argparse.ArgumentParser(usage="%(prog)s [flags] (see --help)")
FLAGS.add_argument("--model-dir", default="", help="checkpoints; a restarted run resumes")
FLAGS.add_argument("--data", default="~/.keras/datasets/mnist.npz", help="as Keras' mnist.npz")
FLAGS.add_argument("--epochs", type=int, default=3)
FLAGS.add_argument("--steps-per-epoch", type=int, default=70)
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a replica in a step")
FLAGS.add_argument("--seed", type=int, default=1)
FLAGS.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="sgd")
FLAGS.add_argument("--learning-rate", type=float, default=0.001)
FLAGS.add_argument("--backend", choices=("auto", "ring", "nccl"), default="auto")
FLAGS.add_argument("--evaluate", action="store_true", help="after each epoch, and at the end")
FLAGS.add_argument("--save-every", type=int, default=0, help="steps between saves in an epoch")
FLAGS.add_argument("--export", default="", help="directory for the trained model")
FLAGS.add_argument("--restore", default="", help="begin with this checkpoint's weights and slots")


def read_role():
    """Return the resolver of TF_CONFIG, and whether this worker is the chief."""
    try:  # a wrong TF_CONFIG may make all workers wait for ever
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        if jobs:
            resolver.cluster_spec().task_address(resolver.task_type, resolver.task_id)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        FLAGS.error(f"TF_CONFIG has no cluster with this task: {error!r}")
    if not {"chief", "worker"}.issuperset(jobs):
        FLAGS.error(f"TF_CONFIG: the jobs are chief and worker, not {sorted(jobs)}")
    first = "chief" if "chief" in jobs else "worker"
    return resolver, not jobs or (resolver.task_type, resolver.task_id) == (first, 0)


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


class Backup(tf.keras.callbacks.BackupAndRestore):
    """Restore a backup, or say in one line that it is damaged."""

    def on_train_begin(self, logs=None):
        try:
            super().on_train_begin(logs)
        except (tf.errors.OpError, OSError, ValueError, LookupError) as error:
            FLAGS.error(f"--model-dir: its backup cannot be restored: {error!r}")


class Start(tf.keras.callbacks.Callback):
    """Count the steps restored from now until training begins; belongs after BackupAndRestore."""

    def __init__(self, optimizer):
        super().__init__()
        self.optimizer, self.steps = optimizer, 0
        self.first = int(optimizer.iterations.numpy())

    def on_train_begin(self, logs=None):  # noqa: ARG002 (Keras' signature)
        self.steps = int(self.optimizer.iterations.numpy()) - self.first


def training_rows(examples, args, batch, start):
    """Return endless batches of rows, int64 [batch], from the step at which training begins.

    BackupAndRestore restores it after `fit` has got the data, so it is read with the first batch.
    """

    def shuffled(number):
        return np.random.default_rng([args.seed, number]).permutation(examples)

    def of_epoch(number):
        order = tf.ensure_shape(tf.numpy_function(shuffled, [number], tf.int64), [examples])
        return tf.data.Dataset.from_tensor_slices(order).repeat().take(args.steps_per_epoch * batch)

    def after(steps):
        rows = tf.data.Dataset.range(steps // args.steps_per_epoch, tf.int64.max).flat_map(of_epoch)
        return rows.skip(steps % args.steps_per_epoch * batch)

    def steps_made(_):
        return tf.numpy_function(lambda: np.int64(start.steps), [], tf.int64)

    rows = tf.data.Dataset.range(1).map(steps_made).flat_map(after)
    return rows.batch(batch).repeat()  # a finite batch costs an all-reduce


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


def main():
    args = FLAGS.parse_args()
    resolver, is_chief = read_role()
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    communication = tf.distribute.experimental.CommunicationImplementation[args.backend.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
    # Starts the server and waits until every worker has joined. No TensorFlow op may run before.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    global_batch = args.batch_size * strategy.num_replicas_in_sync
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = build_model()
        rate, momentum = args.learning_rate, 0.9 if args.optimizer == "momentum" else 0.0
        keras = tf.keras.optimizers
        optimizer = keras.Adam(rate) if args.optimizer == "adam" else keras.SGD(rate, momentum)
        optimizer.build(model.trainable_variables)  # so that a checkpoint restores its slots
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    if args.restore:
        restore(checkpoint, args.restore)
    start = Start(model.optimizer)
    callbacks = []
    if args.model_dir:
        if last := tf.train.latest_checkpoint(os.path.join(args.model_dir, "ckpt")):
            restore(checkpoint, last)  # of a run that has ended
        # Restores the backup of a run that was interrupted. Keras 3 overwrites the last backup.
        keeps_two = "double_checkpoint" in inspect.signature(Backup).parameters  # since Keras 3.7
        often, how = args.save_every or "epoch", {"double_checkpoint": True} if keeps_two else {}
        callbacks += [Backup(os.path.join(args.model_dir, "backup"), save_freq=often, **how)]
    rows = training_rows(len(x_train), args, global_batch, start)
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(global_batch).map(scaled)
    model.fit(
        training_batches(rows, x_train, y_train),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=[*callbacks, start],
        validation_data=test if args.evaluate else None,
        validation_steps=len(test) if args.evaluate else None,
        verbose=2,
    )
    if args.evaluate:
        print(model.evaluate(test, steps=len(test), return_dict=True, verbose=0), flush=True)

    def write(path, save):
        """Save on every worker, since that may need a collective, but not to one path."""
        directory, name = os.path.split(os.path.abspath(path))
        temporary = os.path.join(directory, f"workertemp_{resolver.task_id}")
        save(path if is_chief else os.path.join(temporary, name))
        if not is_chief:
            tf.io.gfile.rmtree(temporary)

    def save_model(path):
        if hasattr(tf.keras, "ops"):  # Keras 3
            os.makedirs(path, exist_ok=True)
            model.save(os.path.join(path, "model.keras"))
        else:
            model.save(path, save_format="tf")

    if args.model_dir:
        manager = functools.partial(tf.train.CheckpointManager, checkpoint, max_to_keep=1)
        write(os.path.join(args.model_dir, "ckpt"), lambda path: manager(path).save())
    if args.export:
        write(args.export, save_model)
    # A last all-reduce, because the others take a worker that exits early for a failed one.
    tf.function(lambda: strategy.reduce("SUM", strategy.run(tf.timestamp), None), autograph=False)()


if __name__ == "__main__":
    main()
