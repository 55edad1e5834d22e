"""Run the DTensor document's training as its code has it, defects included, for its figures.

The model is the 784-700-10-10 that the code builds (the text says 500 where the code overwrites it
with 10). The weights of every layer have the same seed. Adam reads values right after their
assignment, and its step count is a Python number, which tracing freezes. Batches come in a fixed
order, the last with the 8 examples that remain of 5,000, and means over an epoch are means over
batches. The data are a subset of 5,000 + 5,000 drawn with the seed, because the document's own
subset is unknown.
"""

import math

import meshes
import numpy as np
import tensorflow as tf
from meshes import dtensor, trainer

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "dtensor_as_published"
SIZES = (784, 700, 10, 10)
SEED = (22, 23)
EXAMPLES = 5000
BATCH, EPOCHS = 128, 3


class PublishedMLP(trainer.MLP):
    """The trainer's model with the document's seed in each layer."""

    def __init__(self, layout):
        super().__init__([layout] * 3, seed=0, sizes=SIZES)
        for layer, w in enumerate(self.weights[::2]):
            shape = SIZES[layer : layer + 2]
            limit = math.sqrt(6 / sum(shape))
            uniform = tf.function(tf.random.stateless_uniform)
            w.assign(dtensor.call_with_layout(uniform, layout, shape, SEED, -limit, limit))


class FrozenAdam(tf.Module):
    """Adam with the step count and the reads of the document's code."""

    def __init__(self, weights):
        super().__init__()
        self.weights, self.t = weights, 1.0
        self.m, self.v = ([trainer.zeros(w.shape, w.layout) for w in weights] for _ in range(2))

    def apply_gradients(self, gradients):
        for weight, gradient, m, v in zip(self.weights, gradients, self.m, self.v):  # noqa: B905
            m.assign(0.9 * m + 0.1 * gradient)
            v.assign(0.999 * v + 0.001 * tf.square(gradient))
            change = (m / (1 - 0.9**self.t)) / (tf.sqrt(v / (1 - 0.999**self.t)) + 1e-7)
            weight.assign_sub(1e-3 * change)
        self.t += 1.0


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", **workload.OPTIONAL_FLAGS["devices"])
    args = parser.parse_args()
    events = EventWriter()
    data = workload.load_data(args.data)
    mesh = trainer.create_mesh(args.devices)
    draw = np.random.default_rng(args.seed)
    train = batches(data.x_train, data.y_train, draw)
    test = batches(data.x_test, data.y_test, draw)

    model = PublishedMLP(dtensor.Layout.replicated(mesh, rank=2))
    optimizer = FrozenAdam(model.weights)

    @tf.function
    def train_step(x, y):
        gradients, loss, accuracy = trainer.gradients_of(model, x, y)
        optimizer.apply_gradients(gradients)
        return tf.stack([loss, accuracy])

    @tf.function
    def test_step(x, y):
        return tf.reduce_mean(tf.stack(trainer.measure(model(x), y)), axis=1)

    def mean_of(step, some):
        found = [step(meshes.pack(x, mesh), meshes.pack(y, mesh)).numpy() for x, y in some]
        return np.mean(found, axis=0).tolist()

    steps = 0
    for epoch in range(1, 1 + EPOCHS):
        loss, accuracy = mean_of(train_step, train)
        val_loss, val_accuracy = mean_of(test_step, test)
        steps += len(train)
        metrics = {"loss": loss, "accuracy": accuracy}
        metrics.update(val_loss=val_loss, val_accuracy=val_accuracy)
        print("Epoch %d of %d: %s" % (epoch, EPOCHS, metrics), flush=True)
        events.write("epoch", epoch=epoch, steps=len(train), metrics=metrics, global_step=steps)
    events.write("finished", global_step=steps, steps=steps)


def batches(images, labels, draw):
    """Return batches of a drawn subset.

    Images are float32 rows [n, 784] in 0..1 and labels are [n], n up to BATCH.
    """
    rows = draw.permutation(len(images))[:EXAMPLES]
    x = images[rows].reshape(len(rows), SIZES[0]).astype(np.float32) / 255
    y = labels[rows]
    return [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(rows), BATCH)]


if __name__ == "__main__":
    workload.run(main, NAME)
