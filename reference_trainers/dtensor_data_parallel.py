"""Data parallel training with DTensor: a mesh of devices, replicated weights, sharded batches.

Implements https://www.tensorflow.org/guide/core/distribution. Layers, optimizer and training step
are written as for one device; the layouts of weights and batch make the step parallel. It differs
from the document as follows. The hidden layers have 700 and 500 units, as in the document's text
(its code overwrites the second with 10). Each layer has its own seed. Adam counts its steps in a
variable, because a Python number stays constant once the step is traced. Adam reads no variable
after it has assigned to it, because the read may return the old value (dtensor/read-after-assign).
Evaluation accepts any number of examples. A run resumes. With DTENSOR_JOBS the process is one of
several clients that share the mesh.
"""

import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from reference_trainers import custom_loop, dtensor_support, keras_support, multi_worker, workload
from reference_trainers.dtensor_support import Layout

NAME = "dtensor_data_parallel"
BATCH = "batch"  # the mesh dimension
SIZES = (784, 700, 500, 10)
LAYERS = len(SIZES) - 1


class DenseLayer(tf.Module):
    """A dense layer: weights w [inputs, outputs] and biases b [outputs].

    `layout` is that of w; b is sharded like the columns of w.
    """

    def __init__(self, inputs, outputs, layout, seed, activation=tf.identity):
        super().__init__()
        self.activation = activation
        limit = math.sqrt(6.0 / (inputs + outputs))  # Xavier
        uniform = dtensor.call_with_layout(
            tf.function(tf.random.stateless_uniform),
            layout,
            shape=(inputs, outputs),
            seed=seed,
            minval=-limit,
            maxval=limit,
        )
        self.w = dtensor.DVariable(uniform)
        self.b = dtensor_support.zeros([outputs], layout.delete([0]))

    def __call__(self, x):
        return self.activation(tf.matmul(x, self.w) + self.b)


class MLP(tf.Module):
    """A multilayer perceptron with these layer sizes and ReLU in between; returns logits."""

    def __init__(self, layouts, seeds, sizes=SIZES):
        super().__init__()
        activations = [tf.nn.relu] * (len(layouts) - 1) + [tf.identity]
        self.layers = [
            DenseLayer(sizes[i], sizes[i + 1], layout, seeds[i], activations[i])
            for i, layout in enumerate(layouts)
        ]

    @property
    def weights(self):
        """Return the weights, then the biases, layer by layer."""
        return [variable for layer in self.layers for variable in (layer.w, layer.b)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Adam(tf.Module):
    """The document's Adam.

    Each slot has the layout of its variable. The step count is a variable too.
    """

    def __init__(self, variables, learning_rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
        super().__init__()
        self.model_variables, self.learning_rate = variables, learning_rate
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        mesh = variables[0].layout.mesh
        self.iterations = dtensor_support.zeros([], Layout([], mesh), tf.int64)
        self.m = [dtensor_support.zeros(v.shape, v.layout) for v in variables]
        self.v = [dtensor_support.zeros(v.shape, v.layout) for v in variables]

    @property
    def slots(self):
        return self.m + self.v

    def apply_gradients(self, gradients):
        # Use tensors only: within a step, DTensor may return the value from before the assignment.
        step = self.iterations + 1
        self.iterations.assign(step)
        t = tf.cast(step, tf.float32)
        for i, gradient in enumerate(gradients):
            m = self.beta_1 * self.m[i] + (1 - self.beta_1) * gradient
            v = self.beta_2 * self.v[i] + (1 - self.beta_2) * tf.square(gradient)
            self.m[i].assign(m)
            self.v[i].assign(v)
            m /= 1 - tf.pow(self.beta_1, t)
            v /= 1 - tf.pow(self.beta_2, t)
            self.model_variables[i].assign_sub(self.learning_rate * m / (tf.sqrt(v) + self.epsilon))


def losses_of(logits, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def accuracy_of(logits, labels):
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))


def make_gradients(model):
    """Return a function that returns the global batch's gradients and [mean loss, accuracy]."""

    def gradients(x, y):
        with tf.GradientTape() as tape:
            logits = model(x)
            loss = tf.reduce_mean(losses_of(logits, y))
        return tape.gradient(loss, model.weights), tf.stack([loss, accuracy_of(logits, y)])

    return gradients


def make_train_step(model, optimizer):
    """Return a function that runs one step on all devices.

    It returns [loss, accuracy] from before the step.
    """
    gradients = make_gradients(model)

    @tf.function
    def train_step(x, y):
        found, metrics = gradients(x, y)
        # The gradients of replicated weights are replicated: DTensor has summed them over the
        # shards.
        optimizer.apply_gradients(found)
        return metrics

    return train_step


def pack(array, mesh):
    """Divide a global batch (first axis) over the devices of the mesh's batch dimension.

    Each client packs the shards of its own devices. Raise InvalidArgumentError if the batch is not
    divisible by the number of devices.
    """
    layout = Layout.batch_sharded(mesh, BATCH, rank=len(array.shape))
    shards = tf.split(array, mesh.dim_size(BATCH))
    return dtensor.pack([shards[where[BATCH]] for where in mesh.local_device_locations()], layout)


def preprocess(images):
    """Reshape images in 0..1 from [n, 28, 28] to [n, 784]."""
    return tf.reshape(images, [-1, SIZES[0]])


def main():
    args, role, events, data = dtensor_support.begin(NAME, __doc__)
    mesh = dtensor.create_distributed_mesh([(BATCH, args.devices * len(role.workers))])
    multi_worker.report_joined(events, role, "none", replicas=mesh.dim_size(BATCH))
    replicated = Layout.replicated(mesh, rank=2)
    train(args, events, data, [replicated] * LAYERS, build_optimizer)


def build_optimizer(args, model):
    """Return the document's Adam, or the optimizer that the flags select."""
    if args.optimizer == "adam":
        return Adam(model.weights, args.learning_rate)
    return dtensor_support.Momentum(args, model.weights)


def train(args, events, data, layouts, build):
    """Train a model with these layouts and the optimizer that `build` returns; return the model."""
    mesh = layouts[0].mesh
    model = MLP(layouts, seeds=[(args.seed, layer) for layer in range(LAYERS)])
    if args.initial_weights:
        dtensor_support.copy_weights(args.initial_weights, model)
    optimizer = build(args, model)
    # State that a restarted run needs: the number of complete epochs and the steps done in the
    # next.
    epoch = dtensor_support.counter(mesh)
    step_in_epoch = dtensor_support.counter(mesh)
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=optimizer, epoch=epoch, step_in_epoch=step_in_epoch
    )
    save = dtensor_support.restore(args, events, checkpoint) if args.model_dir else lambda: None
    reporter = dtensor_support.EventReporter(events, args, model, optimizer)
    reporter.weights("initial")

    train_step = make_train_step(model, optimizer)
    global_batch = args.batch_size * mesh.dim_size(BATCH)
    evaluate = dtensor_support.make_evaluation(
        model, data, global_batch, lambda array: pack(array, mesh)
    )
    first = custom_loop.position(args, epoch, step_in_epoch)
    batches = iter(keras_support.training_dataset(data, args, global_batch, *first))
    last = ()
    while epoch.numpy() < args.epochs:
        metrics = []
        for step in range(1 + int(step_in_epoch.numpy()), 1 + args.steps_per_epoch):
            images, labels, *rows = next(batches)
            x, y = pack(preprocess(images), mesh), pack(labels, mesh)
            metrics.append(train_step(x, y))
            last = x, y
            reporter.step(metrics[-1], y, *(pack(column, mesh) for column in rows))
            if custom_loop.is_due(args, step):
                step_in_epoch.assign(step)
                save()
        loss, accuracy = np.mean([m.numpy() for m in metrics], axis=0).tolist()
        results = {"loss": loss, "accuracy": accuracy}
        if args.evaluate:
            results.update({"val_" + name: value for name, value in evaluate().items()})
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        print("Epoch %d of %d: %s" % (epoch.numpy(), args.epochs, results), flush=True)
        reporter.epoch(int(epoch.numpy()), len(metrics), results)
        save()

    reporter.weights("final")
    if last:
        reporter.layouts(make_gradients(model), *last)
    if args.evaluate:
        events.write("evaluated", global_step=reporter.global_step, metrics=evaluate())
    if args.export:
        dtensor_support.export(args.export, model, SIZES[0], events)
    dtensor.barrier(mesh)  # a client that exits early takes its part of the mesh with it
    events.write("finished", global_step=reporter.global_step, steps=reporter.steps)
    return model


if __name__ == "__main__":
    workload.run(main, NAME)
