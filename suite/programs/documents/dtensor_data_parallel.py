"""guide/core/distribution: a one-dimensional mesh, replicated weights, sharded batches."""

import tensorflow as tf
import training_reports

from . import common


def train(args, data, role):
    dtensor = tf.experimental.dtensor
    cpu, one = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [one] * args.devices)
    dtensor.initialize_accelerator_system("CPU")
    clients = len(role.workers)
    mesh = dtensor.create_distributed_mesh([("batch", args.devices * clients)])
    replicated = dtensor.Layout.replicated(mesh, rank=2)
    sizes = (784, 700, 500, 10)

    def variable(make, shape, layout):
        return dtensor.DVariable(dtensor.call_with_layout(make, layout, shape))

    xavier = tf.function(tf.keras.initializers.GlorotUniform(seed=args.seed).__call__)
    weights, slots = [], []
    for layer in range(len(sizes) - 1):
        inputs, outputs = sizes[layer : layer + 2]
        weights.append(variable(xavier, (inputs, outputs), replicated))
        weights.append(variable(tf.zeros, (outputs,), replicated.delete([0])))
    for weight in weights:
        slots.append([variable(tf.zeros, weight.shape, weight.layout) for _ in range(2)])
    count = variable(tf.zeros, (), dtensor.Layout([], mesh))

    def logits_of(x):
        for layer in range(0, len(weights), 2):
            x = tf.matmul(x, weights[layer]) + weights[layer + 1]
            if layer + 2 < len(weights):
                x = tf.nn.relu(x)
        return x

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, weights)
        now = count + 1.0
        count.assign(now)
        for own in zip(weights, gradients, slots):  # noqa: B905
            adam(now, *own)
        return loss

    def adam(now, weight, gradient, slots):
        first, second = slots
        mean = 0.9 * first + 0.1 * gradient
        square = 0.999 * second + 0.001 * tf.square(gradient)
        first.assign(mean)
        second.assign(square)
        mean /= 1 - tf.pow(0.9, now)
        square /= 1 - tf.pow(0.999, now)
        weight.assign_sub(args.learning_rate * mean / (tf.sqrt(square) + 1e-7))

    def packed(array):
        layout = dtensor.Layout.batch_sharded(mesh, "batch", rank=len(array.shape))
        shards = tf.split(array, mesh.dim_size("batch"))
        own = [shards[where["batch"]] for where in mesh.local_device_locations()]
        return dtensor.pack(own, layout)

    losses = []
    for images, labels in common.batches(data, args.batch_size * mesh.dim_size("batch")):
        losses.append(step(packed(tf.reshape(images, [-1, sizes[0]])), packed(labels)))
        # DTensor returns from a step before it is computed. To read its loss is to wait for it.
        training_reports.step(losses[-1])
