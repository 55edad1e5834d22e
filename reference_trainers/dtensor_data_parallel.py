"""Data parallel training with DTensor: a mesh of devices, replicated weights, sharded batches.

Implements https://www.tensorflow.org/guide/core/distribution, but the hidden layers have 700 and
500 units as in its text (its code has 10 in place of 500), each layer has its own seed, and a
restarted run resumes. Several clients share a mesh if each is started with its number:

    DTENSOR_JOBS=host1:2222,host2:2222 DTENSOR_CLIENT_ID=0 python dtensor_data_parallel.py
"""

import argparse
import os

import numpy as np
import tensorflow as tf
import training_reports

dtensor = tf.experimental.dtensor
FLAGS = argparse.ArgumentParser(usage="%(prog)s [flags] (see --help)")
FLAGS.add_argument("--model-dir", default="", help="checkpoints; a restarted run resumes")
FLAGS.add_argument("--data", default="~/.keras/datasets/mnist.npz", help="as Keras' mnist.npz")
FLAGS.add_argument("--epochs", type=int, default=3)
FLAGS.add_argument("--steps-per-epoch", type=int, default=70)
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a replica in a step")
FLAGS.add_argument("--seed", type=int, default=1)
FLAGS.add_argument("--devices", type=int, default=2, help="of each client; they share its CPU")
FLAGS.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="adam")
FLAGS.add_argument("--learning-rate", type=float, default=0.001)
FLAGS.add_argument("--evaluate", action="store_true", help="after each epoch, and at the end")
FLAGS.add_argument("--save-every", type=int, default=0, help="steps between saves in an epoch")
FLAGS.add_argument("--export", default="", help="directory for the trained model")


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


def create_mesh(devices):
    """Return a mesh of this many devices of each client, once all clients have started."""
    try:
        dtensor.client_id()  # a wrong number may make all clients wait for ever
        cpu, one = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [one] * devices)
        dtensor.initialize_accelerator_system("CPU")
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        FLAGS.error(f"--devices, DTENSOR_JOBS or DTENSOR_CLIENT_ID: {error}")
    return dtensor.create_distributed_mesh([("batch", devices * dtensor.num_clients())])


def training_rows(examples, args, batch, done):
    """Yield the rows of each batch, int64 [batch], of the steps that are left after so many."""
    for epoch in range(done // args.steps_per_epoch, args.epochs):
        order = np.random.default_rng([args.seed, epoch]).permutation(examples)
        for step in range(done % args.steps_per_epoch, args.steps_per_epoch):
            yield order[np.arange(step * batch, (step + 1) * batch) % examples]
        done = 0


def zeros(shape, layout, dtype=tf.float32):
    return dtensor.DVariable(dtensor.call_with_layout(tf.zeros, layout, shape, dtype))


class MLP(tf.Module):
    """Three dense layers: w [inputs, outputs] with the given layout, b [outputs] as its columns."""

    def __init__(self, layouts, seed, sizes=(784, 700, 500, 10)):
        super().__init__()
        self.weights, uniform = [], tf.function(tf.random.stateless_uniform)
        for layer, (layout, *shape) in enumerate(zip(layouts, sizes, sizes[1:])):  # noqa: B905
            limit = (6 / sum(shape)) ** 0.5  # Xavier
            w = dtensor.call_with_layout(uniform, layout, shape, (seed, layer), -limit, limit)
            self.weights += [dtensor.DVariable(w), zeros(shape[1:], layout.delete([0]))]

    def __call__(self, x):
        w1, b1, w2, b2, w3, b3 = self.weights
        return tf.nn.relu(tf.nn.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def build_model(mesh, seed):
    return MLP([dtensor.Layout.replicated(mesh, rank=2)] * 3, seed)


class Optimizer(tf.Module):
    """The document's Adam, or Keras' SGD. A variable counts the steps: tracing freezes numbers."""

    def __init__(self, kind, weights, rate):
        super().__init__()
        self.kind, self.weights, self.rate = kind, weights, rate
        self.iterations = zeros([], dtensor.Layout([], weights[0].layout.mesh), tf.int64)
        slots = {"sgd": 0, "momentum": 1, "adam": 2}[kind]
        self.slots = [[zeros(w.shape, w.layout) for _ in range(slots)] for w in weights]

    def apply_gradients(self, gradients):
        t = tf.cast(self.iterations, tf.float32) + 1
        self.iterations.assign_add(1)
        # A variable is not read once it is assigned: DTensor may return the value from before.
        for weight, gradient, slots in zip(self.weights, gradients, self.slots):  # noqa: B905
            if self.kind == "adam":
                m = 0.9 * slots[0] + 0.1 * gradient
                v = 0.999 * slots[1] + 0.001 * tf.square(gradient)
                slots[0].assign(m)
                slots[1].assign(v)
                gradient = m / (1 - tf.pow(0.9, t)) / (tf.sqrt(v / (1 - tf.pow(0.999, t))) + 1e-7)
            change = -self.rate * gradient
            if self.kind == "momentum":
                change += 0.9 * slots[0]
                slots[0].assign(change)
            weight.assign_add(change)


def measure(logits, labels):
    """Return the loss of each example, and 1.0 for each that is right, float32 [batch]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return losses, tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32)


def gradients_of(model, images, labels):
    """Return gradients, which DTensor has summed over the shards, mean loss, and accuracy."""
    with tf.GradientTape() as tape:
        losses, right = measure(model(images), labels)
        loss = tf.reduce_mean(losses)
    return tape.gradient(loss, model.weights), loss, tf.reduce_mean(right)


def main():
    args = FLAGS.parse_args()
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    mesh = create_mesh(args.devices)
    replicas, own = mesh.dim_size("batch"), [p["batch"] for p in mesh.local_device_locations()]
    global_batch = args.batch_size * replicas
    model = build_model(mesh, args.seed)
    optimizer = Optimizer(args.optimizer, model.weights, args.learning_rate)

    @tf.function
    def train_step(images, labels):
        gradients, loss, accuracy = gradients_of(model, images, labels)
        optimizer.apply_gradients(gradients)
        return loss, accuracy

    @tf.function
    def test_step(images, labels, counts):
        return tf.reduce_sum(tf.stack(measure(model(images), labels)) * counts, axis=1)

    def pack(array):
        """Divide a global batch (first axis) over the devices; each client packs its own shards."""
        shards = tf.split(array, replicas)
        layout = dtensor.Layout.batch_sharded(mesh, "batch", rank=array.ndim)
        return dtensor.pack([shards[i] for i in own], layout)

    def examples(images, labels, rows):
        return pack(images[rows].reshape(-1, 784) / np.float32(255)), pack(np.int64(labels[rows]))

    def evaluate():
        sums = np.zeros(2)
        for first in range(0, len(x_test), global_batch):
            rows = np.arange(first, first + global_batch)
            counts = pack(np.float32(rows < len(x_test)))  # 0 for those that fill the last batch
            sums += test_step(*examples(x_test, y_test, rows % len(x_test)), counts).numpy()
        return dict(zip(("loss", "accuracy"), (sums / len(x_test)).tolist()))  # noqa: B905

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, os.path.join(args.model_dir, "ckpt"), 1)
    # DTensor writes a checkpoint after the manager has listed it, so a killed run may lack one.
    written = [path for path in manager.checkpoints if os.path.exists(path + ".index")]
    if args.model_dir and written:
        try:
            checkpoint.restore(written[-1]).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
            FLAGS.error(f"{written[-1]} cannot be restored: {' '.join(str(error).split())}")

    means, done = [], int(optimizer.iterations.numpy())
    steps = range(done + 1, args.epochs * args.steps_per_epoch + 1)
    for step, rows in zip(steps, training_rows(len(x_train), args, global_batch, done)):  # noqa: B905
        means.append(train_step(*examples(x_train, y_train, rows)))
        training_reports.step(means[-1][0], ids=[*rows.reshape(replicas, -1)[sorted(set(own))]])
        epoch, within = divmod(step, args.steps_per_epoch)
        if within == 0:
            metrics = dict(zip(("loss", "accuracy"), np.mean(means, axis=0).tolist()))  # noqa: B905
            means = []
            if args.evaluate:
                metrics = {**metrics, **{f"val_{k}": value for k, value in evaluate().items()}}
            print(f"Epoch {epoch} of {args.epochs}: {metrics}", flush=True)
            training_reports.epoch(epoch, metrics)
        if args.model_dir and within % (args.save_every or args.steps_per_epoch) == 0:
            manager.save()
    if args.evaluate:
        training_reports.evaluated(evaluate())
    if args.export:
        images = tf.TensorSpec([None, 784], tf.float32, name="images")
        serve = tf.function(lambda images: {"logits": model(images)}, input_signature=[images])
        tf.saved_model.save(model, args.export, signatures=serve)
    dtensor.barrier(mesh)  # the others fail if a client exits early


if __name__ == "__main__":
    main()
