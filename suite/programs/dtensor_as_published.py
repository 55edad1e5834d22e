"""Run the DTensor document's training as its code has it, defects included, for its figures.

The model is the 784-700-10-10 that the code builds (the text says 500 where the code overwrites it
with 10). The weights of every layer have the same seed. Adam reads values right after their
assignment, and its step count is a Python number, which tracing freezes. Batches come in a fixed
order, the last with the 8 examples that remain of 5,000, and means over an epoch are means over
batches. The data are a subset of 5,000 + 5,000 drawn with the seed, because the document's own
subset is unknown.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from reference_trainers import dtensor_data_parallel as trainer
from reference_trainers import workload
from reference_trainers.dtensor_support import Layout
from reference_trainers.events import EventWriter

NAME = "dtensor_as_published"
SIZES = (784, 700, 10, 10)
SEED = (22, 23)
EXAMPLES = 5000
BATCH, EPOCHS = 128, 3


class FrozenAdam(trainer.Adam):
    """Adam with the step count and the reads of the document's code."""

    def __init__(self, variables):
        super().__init__(variables, learning_rate=1e-3)
        self.t = 1.0

    def apply_gradients(self, gradients):
        for i, gradient in enumerate(gradients):
            m, v = self.m[i], self.v[i]
            m.assign(self.beta_1 * m + (1 - self.beta_1) * gradient)
            v.assign(self.beta_2 * v + (1 - self.beta_2) * tf.square(gradient))
            change = (m / (1 - self.beta_1**self.t)) / (
                tf.sqrt(v / (1 - self.beta_2**self.t)) + self.epsilon
            )
            self.model_variables[i].assign_sub(self.learning_rate * change)
        self.t += 1.0


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", **workload.OPTIONAL_FLAGS["devices"])
    args = parser.parse_args()
    events = EventWriter()
    data = workload.load_data(args.data)
    dtensor.initialize_accelerator_system("CPU", num_logical_cpu_devices=args.devices)
    mesh = dtensor.create_distributed_mesh([(trainer.BATCH, args.devices)])
    draw = np.random.default_rng(args.seed)
    train = batches(data.x_train, data.y_train, draw)
    test = batches(data.x_test, data.y_test, draw)

    replicated = Layout.replicated(mesh, rank=2)
    layers = len(SIZES) - 1
    model = trainer.MLP([replicated] * layers, seeds=[SEED] * layers, sizes=SIZES)
    train_step = trainer.make_train_step(model, FrozenAdam(model.weights))

    @tf.function
    def test_step(x, y):
        logits = model(x)
        return tf.stack(
            [tf.reduce_mean(trainer.losses_of(logits, y)), trainer.accuracy_of(logits, y)]
        )

    def mean_of(step, some):
        found = [step(trainer.pack(x, mesh), trainer.pack(y, mesh)).numpy() for x, y in some]
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
