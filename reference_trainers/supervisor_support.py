"""What the Supervisor's trainer needs around the guide's code: a model, batches, and its events.

The guide leaves the model open; this is an MLP, 784-128-10, trained by its Adagrad. The Saver and
FileWriter tell what the Supervisor's own threads do, at the moment they do it.
"""

import threading

import numpy as np
import tensorflow as tf

from reference_trainers import workload

tf1 = tf.compat.v1


class Model(object):
    """The graph. Make it inside the device function that places variables and ops."""

    def __init__(self, learning_rate):
        self.x = tf1.placeholder(tf.float32, [None, 784])
        self.y = tf1.placeholder(tf.int64, [None])
        self.global_step = tf1.train.get_or_create_global_step()
        hidden = tf.nn.relu(self._layer("hidden", self.x, 784, 128))
        logits = self._layer("softmax", hidden, 128, 10)
        self.loss = tf1.losses.sparse_softmax_cross_entropy(self.y, logits)
        self.correct = tf.equal(tf.argmax(logits, 1), self.y)
        train_op = tf1.train.AdagradOptimizer(learning_rate).minimize(
            self.loss, global_step=self.global_step
        )
        with tf.control_dependencies([train_op]):
            # Fetched beside train_op, the step might be read before it is counted.
            self.train_and_step = tf.identity(self.global_step.read_value())
        # Both in one: a second fetch costs a step, which takes 2 to 3 ms, nearly one percent.
        step_and_loss = [tf.cast(x, tf.float64) for x in (self.train_and_step, self.loss)]
        self.train_and_tell = tf.stack(step_and_loss)
        self.weights = tf1.trainable_variables()
        others = [self.global_step] + self.weights
        self.slots = [v for v in tf1.global_variables() if all(v is not o for o in others)]

    @staticmethod
    def _layer(name, x, inputs, outputs):
        with tf1.variable_scope(name):
            weights = tf1.get_variable(
                "weights", [inputs, outputs], initializer=tf1.glorot_uniform_initializer()
            )
            biases = tf1.get_variable("biases", [outputs], initializer=tf1.zeros_initializer())
        # Of variables only: the Supervisor computes summaries by itself, and feeds nothing.
        tf1.summary.histogram(name, weights)
        return tf.matmul(x, weights) + biases

    def feed(self, images, labels):
        """What a step is fed: uint8 images [n, 28, 28] scaled to 0..1, and their labels."""
        return {self.x: images.reshape(-1, 784) / np.float32(255), self.y: labels}

    def state(self, session):
        """Global step and digests, as the variables are on the parameter servers just now."""
        step, weights, slots = session.run([self.global_step, self.weights, self.slots])
        return {
            "global_step": int(step),
            "iterations": int(step),
            "digest": workload.digest(weights),
            "slots_digest": workload.digest(slots),
        }

    def evaluate(self, session, images, labels, batch=1000):
        """Mean `loss` and `accuracy` over the images, with the weights as they are just now."""
        losses, correct = 0.0, 0
        for first in range(0, len(images), batch):
            x, y = images[first : first + batch], labels[first : first + batch]
            loss, right = session.run([self.loss, self.correct], self.feed(x, y))
            losses += float(loss) * len(y)
            correct += int(right.sum())
        return {"loss": losses / len(images), "accuracy": correct / len(images)}

    def placement(self, session, feed):
        """Fields of `placed`, from the metadata of one step that is run (but not applied).

        `variables`: device of each in the order of creation; `ops`: where each op really ran.
        """
        metadata = tf1.RunMetadata()
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        session.run([self.loss, self.weights], feed, options=options, run_metadata=metadata)
        ran = {}
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                ran[node.node_name.split(":")[0]] = device.device
        known = {op.name for op in session.graph.get_operations()}
        return {
            "variables": {v.op.name: v.device for v in [self.global_step] + self.weights},
            "ops": {name: device for name, device in sorted(ran.items()) if name in known},
        }


def batches(examples, seed, task_index, batch):
    """Rows of batch after batch, int64 [batch], without end: each worker shuffles all the data."""
    generator = np.random.default_rng([seed, task_index])
    order = np.zeros(0, np.int64)
    while True:
        while len(order) < batch:
            order = np.concatenate([order, generator.permutation(examples)])
        yield order[:batch]
        order = order[batch:]


def check_model_dir(directory, model):
    """BadInput when the last checkpoint there is damaged or of another model."""
    path = tf.train.latest_checkpoint(directory)
    if not path:
        return
    try:
        stored = tf.train.load_checkpoint(path)
        shapes = stored.get_variable_to_shape_map()
        for name in shapes:
            stored.get_tensor(name)
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise workload.BadInput(
            "--model-dir: the checkpoint %s is damaged: %s" % (path, error)
        ) from error
    own = {v.op.name: v.shape.as_list() for v in [model.global_step] + model.weights + model.slots}
    if shapes != own:
        raise workload.BadInput(
            "--model-dir: the checkpoint %s is of another model: it has %s, this model %s"
            % (path, sorted(shapes.items()), sorted(own.items()))
        )


class TellingSaver(tf1.train.Saver):
    """A Saver that tells of every save and restore, and serves one thread at a time.

    The Supervisor saves from a thread of its own, and the training loop may save as well.
    """

    def __init__(self, model, events):
        super().__init__()
        self._model, self._events, self._lock = model, events, threading.Lock()
        self.restored = None  # fields of `restored`, as of the moment when it happened

    def save(self, sess, save_path, global_step=None, **kwargs):
        with self._lock:
            path = super().save(sess, save_path, global_step=global_step, **kwargs)
        if self._events.enabled:
            # Read back from the disk: other workers train on while this one saves.
            stored = tf.train.load_checkpoint(path)
            self._events.write(
                "checkpoint_saved",
                path=path,
                global_step=int(stored.get_tensor(self._model.global_step.op.name)),
                digest=self._digest(stored, self._model.weights),
                slots_digest=self._digest(stored, self._model.slots),
            )
        return path

    @staticmethod
    def _digest(stored, variables):
        return workload.digest([stored.get_tensor(v.op.name) for v in variables])

    def restore(self, sess, save_path):
        super().restore(sess, save_path)
        if self._events.enabled:
            # Now, before the other workers notice that the model is ready and change it.
            self.restored = dict(self._model.state(sess), path=save_path)


class TellingWriter(tf1.summary.FileWriter):
    """A FileWriter that tells of every summary that the Supervisor's thread has computed."""

    def __init__(self, directory, events):
        super().__init__(directory)
        self._directory, self._events = directory, events

    def add_summary(self, summary, global_step=None):
        super().add_summary(summary, global_step)
        if isinstance(summary, bytes):  # the Supervisor's own steps/s come as a protobuf
            self._events.write("summary", path=self._directory, global_step=int(global_step or 0))
