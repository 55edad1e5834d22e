"""Helpers of the DTensor trainer that its document does not cover: events, resuming, optimizers.

Importing this module does not start TensorFlow's runtime, so a process may fork after it.
"""

import os
import platform
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from reference_trainers import BY_NAME, digests, keras_checkpoints, roles, workload
from reference_trainers.events import EventWriter

Layout: Any = dtensor.Layout  # pyright's stubs know it by name only


def begin(name, document):
    """Return flags, role, events and data, and initialize this process's devices.

    Call it before the mesh is created. `name` and `document` are those of the program. The flags
    are those of the trainer.
    """
    row = BY_NAME["dtensor_data_parallel"]
    defaults = {"optimizer": "adam", "devices": row.devices}
    args = workload.parser(name, document, row.flags, **defaults).parse_args()
    role = roles.role_from_dtensor()
    events = EventWriter(role.task)
    events.write(
        "started",
        pid=os.getpid(),
        trainer=name,
        seed=args.seed,
        tensorflow=tf.__version__,
        keras="none",
        python=platform.python_version(),
    )
    data = workload.load_data(args.data)
    # The first TensorFlow call. With several clients it starts the server and waits for all
    # clients.
    dtensor.initialize_accelerator_system("CPU", num_logical_cpu_devices=args.devices)
    return args, role, events, data


# --- variables -------------------------------------------------------------------------------


def zeros(shape, layout, dtype=tf.float32):
    """Return a variable of zeros with this layout."""
    initial = dtensor.call_with_layout(tf.zeros, layout, shape=shape, dtype=dtype)
    return dtensor.DVariable(initial)


def counter(mesh):
    """Return an integer variable that is replicated on every device of the mesh, initially 0."""
    return zeros([], Layout([], mesh), tf.int64)


def values(variables):
    """Return the full arrays of the variables, whatever their sharding."""
    whole = (Layout.replicated(v.layout.mesh, rank=v.shape.rank) for v in variables)
    return [dtensor.relayout(v.read_value(), layout).numpy() for v, layout in zip(variables, whole)]  # noqa: B905


def copy_weights(path, model):
    """Load weights that another run dumped: arr_0, arr_1, ... in this model's order."""
    arrays = workload.load_weights(path, [tuple(v.shape) for v in model.weights])
    for variable, array in zip(model.weights, arrays):  # noqa: B905
        whole = Layout.replicated(variable.layout.mesh, rank=array.ndim)
        variable.assign(dtensor.relayout(dtensor.copy_to_mesh(array, whole), variable.layout))


class Momentum(tf.Module):
    """Gradient descent with momentum, by the same formula as Keras' SGD."""

    def __init__(self, args, variables):
        super().__init__()
        self.model_variables, self.learning_rate = variables, args.learning_rate
        self.momentum = {"sgd": 0.0, "momentum": 0.9}[args.optimizer]
        self.iterations = counter(variables[0].layout.mesh)
        self.slots = [zeros(v.shape, v.layout) for v in variables] if self.momentum else []

    def apply_gradients(self, gradients):
        self.iterations.assign_add(1)
        for i, gradient in enumerate(gradients):
            change = -self.learning_rate * gradient
            if self.momentum:
                change += self.momentum * self.slots[i]
                self.slots[i].assign(change)  # not read back: DTensor may return the old value
            self.model_variables[i].assign_add(change)


def make_evaluation(model, data, global_batch, packed):
    """Return a function that returns mean `loss` and `accuracy` over the test set.

    `packed` divides a global batch over the devices. The padding of the last batch has weight 0.
    """

    @tf.function
    def sums(x, y, weight):
        logits = model(x)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        right = tf.cast(tf.equal(tf.argmax(logits, axis=1), y), tf.float32)
        return tf.reduce_sum(tf.stack([losses, right, tf.ones_like(right)]) * weight, axis=1)

    def evaluate():
        total = np.zeros(3)
        for first in range(0, len(data.x_test), global_batch):
            images = data.x_test[first : first + global_batch]
            missing = global_batch - len(images)
            x = np.pad(images.reshape(len(images), -1), [(0, missing), (0, 0)])
            y = np.pad(data.y_test[first : first + global_batch], (0, missing))
            weight = np.pad(np.ones(len(images), np.float32), (0, missing))
            columns = x.astype(np.float32) / 255, y, weight
            total += sums(*(packed(column) for column in columns)).numpy()
        loss, right, examples = total
        return {"loss": float(loss / examples), "accuracy": float(right / examples)}

    return evaluate


# --- checkpoints -----------------------------------------------------------------------------


def restore(args, events, checkpoint):
    """Restore the last checkpoint, if there is one, and return a function that saves the next."""
    model, optimizer = checkpoint.model, checkpoint.optimizer
    keras_checkpoints.model_directory(args.model_dir)
    directory = os.path.join(args.model_dir, "ckpt")
    path, seconds = keras_checkpoints.restore_latest(checkpoint, directory, model)
    if path and events.enabled:
        found = state(model, optimizer)
        where = {"path": path, "global_step": found["iterations"]}
        events.write("restored", seconds=seconds, **where, **found)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)

    def save():
        """Save on every client: each writes the components on its own devices."""
        keras_checkpoints.save_and_report(manager, events, int(optimizer.iterations.numpy()))

    return save


def export(path, model, inputs, events):
    """Write a SavedModel whose signature takes ordinary tensors, float32 [n, inputs]."""

    @tf.function(input_signature=[tf.TensorSpec([None, inputs], tf.float32, name="images")])
    def serve(images):
        return {"logits": model(images)}

    tf.saved_model.save(model, path, signatures=serve)
    if events.enabled:
        stored = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
        layers = range(len(model.layers))
        names = ["layers/%d/%s" % (i, name) for i in layers for name in ("w", "b")]
        arrays = [stored.get_tensor(name + keras_checkpoints.VALUE) for name in names]
        events.write("exported", path=path, kept=True, digest=digests.digest(arrays))


# --- events ----------------------------------------------------------------------------------


def state(model, optimizer):
    """Return the training state: `iterations`, `digest` (of weights) and `slots_digest`."""
    return {
        "iterations": int(optimizer.iterations.numpy()),
        "digest": digests.digest(values(model.weights)),
        "slots_digest": digests.digest(values(optimizer.slots)),
    }


def copies(model):
    """Return the digest of the weight components on each device of this client."""
    return digests.copies(model.weights)


class EventReporter(object):
    """Write the events of the training loop; counts are of this incarnation's own steps."""

    def __init__(self, events, args, model, optimizer):
        self._events, self._args = events, args
        self._model, self._optimizer = model, optimizer
        self.steps = 0
        self.global_step = int(optimizer.iterations.numpy())

    def step(self, metrics, labels, rows=None):
        """Report a completed step: its [loss, accuracy], packed labels and packed rows."""
        self.steps += 1
        self.global_step += 1
        if not self._events.enabled:
            return
        where = {"step": self.steps, "global_step": self.global_step}
        own = labels.shape[0] // dtensor.num_clients()
        self._events.write_soon(
            "step", later=lambda: {"loss": float(metrics.numpy()[0])}, examples=own, **where
        )
        if rows is not None:
            ids = np.concatenate([shard.numpy() for shard in dtensor.unpack(rows)])
            self._events.write("input", ids=ids.tolist(), **where)

    def epoch(self, epoch, steps, metrics):
        self._events.write(
            "epoch", epoch=epoch, steps=steps, metrics=metrics, global_step=self.global_step
        )
        self.weights("epoch")

    def weights(self, when):
        if not self._events.enabled:
            return
        extra = {}
        if self._args.dump_weights:
            extra["npz"] = self._events.sibling("%s-%d.npz" % (when, self.global_step))
            np.savez(extra["npz"], *values(self._model.weights))
        found = state(self._model, self._optimizer)
        found["copies"] = copies(self._model)
        self._events.write("weights", when=when, global_step=self.global_step, **found, **extra)

    def layouts(self, gradients, x, y):
        """Write `laid_out`: layout of weights, batch and gradients on this client's devices."""
        if not self._events.enabled:
            return
        found, _ = tf.function(gradients)(x, y)
        arrays = {"batch": [x, y], "weights": self._model.weights, "gradients": found}
        self._events.write(
            "laid_out",
            **{kind: [laid_out(array) for array in some] for kind, some in arrays.items()},
        )


def laid_out(array):
    """Return `specs` and `shape` of a DTensor or DVariable, and its `components`.

    A component has a device, a shape and a digest.
    """
    layout = dtensor.fetch_layout(array)
    devices = layout.mesh.local_devices()
    components = dtensor.unpack(array.read_value() if hasattr(array, "read_value") else array)
    return {
        "specs": list(layout.sharding_specs),
        "shape": list(array.shape),
        "components": [
            {"device": device, "shape": list(part.shape), "digest": digests.digest([part.numpy()])}
            for device, part in zip(devices, components)  # noqa: B905
        ],
    }
