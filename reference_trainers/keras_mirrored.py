"""One process, several devices: MirroredStrategy with Keras Model.fit.

Implements https://www.tensorflow.org/tutorials/distribute/keras: callbacks write event files for
TensorBoard, save a checkpoint after each epoch, and set and print the learning rate of each epoch.
Unlike in the document, a restarted run resumes, with the data that it has not seen.
"""

import argparse
import glob
import importlib.util
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
FLAGS.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="adam")
FLAGS.add_argument("--learning-rate", type=float, default=0.001)
FLAGS.add_argument("--evaluate", action="store_true", help="after each epoch, and at the end")
FLAGS.add_argument("--save-every", type=int, default=0, help="steps between saves in an epoch")
FLAGS.add_argument("--export", default="", help="directory for the trained model")
FLAGS.add_argument("--restore", default="", help="begin with this checkpoint's weights and slots")


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
        rows = tf.data.Dataset.from_tensor_slices(order)
        return rows.repeat().take(args.steps_per_epoch * batch)

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
    features = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
    classes = [layers.Dense(64, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential(image + features + classes)


def decay(epoch, rate):
    """Return the learning rate of an epoch, counted from 0."""
    return rate * (1.0 if epoch < 3 else 0.1 if epoch < 7 else 0.01)


def load_last(model, directory):
    """Load the weights and the optimizer's state that ModelCheckpoint saved last, if any."""
    of_keras_3 = glob.glob(os.path.join(directory, "ckpt_*.weights.h5"))
    numbered = {int(path.rsplit("_", 1)[1].split(".")[0]): path for path in of_keras_3}
    path = numbered[max(numbered)] if numbered else tf.train.latest_checkpoint(directory)
    try:
        status = model.load_weights(path) if path else None
        if status:
            status.assert_existing_objects_matched()
    except (tf.errors.OpError, OSError, AssertionError, ValueError, LookupError) as error:
        FLAGS.error(f"{path} cannot be restored: {' '.join(str(error).split())}")


def restore(checkpoint, path):
    try:
        checkpoint.restore(path).assert_existing_objects_matched()
    except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
        FLAGS.error(f"{path} cannot be restored: {' '.join(str(error).split())}")


def main():
    args = FLAGS.parse_args()
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    print(f"Number of devices: {strategy.num_replicas_in_sync}", flush=True)
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
    is_keras_3 = hasattr(tf.keras, "ops")
    if args.restore:
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        restore(checkpoint, args.restore)
    start = Start(model.optimizer)

    def print_rate(epoch, _):
        rate = optimizer.learning_rate.numpy()
        print(f"\nLearning rate for epoch {epoch + 1} is {rate:.9g}", flush=True)

    callbacks = [
        tf.keras.callbacks.LearningRateScheduler(lambda epoch: decay(epoch, args.learning_rate)),
        tf.keras.callbacks.LambdaCallback(on_epoch_end=print_rate),
    ]
    if args.model_dir:
        directory = os.path.join(args.model_dir, "training_checkpoints")
        backup, often = os.path.join(args.model_dir, "backup"), args.save_every or "epoch"
        if not any(files for *_, files in os.walk(backup)):  # else the run was interrupted
            load_last(model, directory)
        if importlib.util.find_spec("tensorboard"):
            callbacks.append(tf.keras.callbacks.TensorBoard(os.path.join(args.model_dir, "logs")))
        else:  # TensorFlow up to 2.20 installs it
            print("TensorBoard is not installed: no event files", flush=True)
        # Keras 3 takes no other suffix, and overwrites the last backup.
        name = os.path.join(directory, "ckpt_{epoch}" + (".weights.h5" if is_keras_3 else ""))
        keeps_two = "double_checkpoint" in inspect.signature(Backup).parameters  # since Keras 3.7
        how = {"double_checkpoint": True} if keeps_two else {}
        callbacks += [
            Backup(backup, save_freq=often, **how),
            tf.keras.callbacks.ModelCheckpoint(name, save_weights_only=True),
        ]
    rows = training_rows(len(x_train), args, global_batch, start)
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(global_batch).map(scaled)
    model.fit(
        training_batches(rows, x_train, y_train),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=[*callbacks, start],
        validation_data=test if args.evaluate else None,
        verbose=2,
    )
    if args.evaluate:
        print(model.evaluate(test, return_dict=True, verbose=0), flush=True)
    if args.export and is_keras_3:
        os.makedirs(args.export, exist_ok=True)
        model.save(os.path.join(args.export, "model.keras"))
    elif args.export:
        model.save(args.export, save_format="tf")


if __name__ == "__main__":
    main()
