"""Helpers of the Supervisor trainers beyond the guide's code: flags, model, steps, events.

The guide leaves the model open. Here it is an MLP, 784-128-10. The Saver and FileWriter subclasses
report saves and summaries of the Supervisor's own threads as they occur.
"""

import os
import platform
import sys
import threading

import numpy as np
import tensorflow as tf

from reference_trainers import BY_NAME, digests, roles, workload
from reference_trainers.events import EventWriter

tf1 = tf.compat.v1

# Errors on a worker when a parameter server is gone.
PEER_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)


def parser(name, document):
    """Return the flags of the trainer's row and of the guide: role, hosts and save intervals."""
    result = workload.parser(name, document, BY_NAME[name].flags, learning_rate=0.01)
    add = result.add_argument
    add("--ps_hosts", default="", metavar="HOST:PORT,...", help="the parameter servers")
    add("--worker_hosts", default="", metavar="HOST:PORT,...", help="the workers; 0 is the chief")
    add("--job_name", default="worker", choices=("ps", "worker"), help="job of this task")
    add("--task_index", type=workload.number(int, 0), default=0, metavar="N", help="its index")
    seconds = workload.number(int, 1)
    add("--save-model-secs", type=seconds, default=600, metavar="S", help="(default: 600)")
    add("--save-summaries-secs", type=seconds, default=120, metavar="S", help="(default: 120)")
    return result


class Task(object):
    """This process: its `role` in the cluster, its `events`, and the `data` of a worker."""

    def __init__(self, name, args):
        self.name, self.args = name, args
        self.role = roles.role_from_hosts(args)
        self.events = EventWriter(self.role.task)
        self.events.write(
            "started",
            tensorflow=tf.__version__,
            keras="none",
            python=platform.python_version(),
            pid=os.getpid(),
            trainer=name,
            seed=args.seed,
        )
        self.data = workload.load_data(args.data) if args.job_name == "worker" else None
        # For the whole process: in eager mode the Supervisor's threads would fail.
        tf1.disable_eager_execution()
        tf1.set_random_seed(args.seed)

    def report_joined(self):
        """Write `joined`: this task's server or session is up."""
        self.events.write(
            "joined",
            cluster=self.role.cluster,
            workers=len(self.role.workers),
            chief=self.role.chief,
            backend="none",
            replicas=1,
        )


class Model(object):
    """The graph. Create it inside the device function that places variables and ops."""

    def __init__(self, optimizer):
        self.x = tf1.placeholder(tf.float32, [None, 784])
        self.y = tf1.placeholder(tf.int64, [None])
        self.global_step = tf1.train.get_or_create_global_step()
        hidden = tf.nn.relu(self._layer("hidden", self.x, 784, 128))
        logits = self._layer("softmax", hidden, 128, 10)
        self.loss = tf1.losses.sparse_softmax_cross_entropy(self.y, logits)
        self.correct = tf.equal(tf.argmax(logits, 1), self.y)
        train_op = optimizer.minimize(self.loss, global_step=self.global_step)
        # The train_op of SyncReplicasOptimizer returns the global step from which the worker may
        # continue. Other train_ops return nothing.
        counted = not isinstance(train_op, tf.Operation)
        with tf.control_dependencies([train_op]):
            # If fetched together with train_op, the step might be read before it is incremented.
            self.train_and_step = tf.identity(
                train_op if counted else self.global_step.read_value()
            )
        # Both in one: a second fetch adds almost one percent to a step of 2 to 3 ms.
        step_and_loss = [tf.cast(x, tf.float64) for x in (self.train_and_step, self.loss)]
        self.train_and_report = tf.stack(step_and_loss)
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
        """Return the feed of a step: uint8 images [n, 28, 28] scaled to 0..1, and their labels."""
        return {self.x: images.reshape(-1, 784) / np.float32(255), self.y: labels}

    def state(self, session):
        """Return global step and digests of the current variables on the parameter servers."""
        step, weights, slots = session.run([self.global_step, self.weights, self.slots])
        return {
            "global_step": int(step),
            "iterations": int(step),
            "digest": digests.digest(weights),
            "slots_digest": digests.digest(slots),
        }

    def evaluate(self, session, images, labels, batch=1000):
        """Return mean `loss` and `accuracy` over the images, with the current weights."""
        losses, correct = 0.0, 0
        for first in range(0, len(images), batch):
            x, y = images[first : first + batch], labels[first : first + batch]
            loss, right = session.run([self.loss, self.correct], self.feed(x, y))
            losses += float(loss) * len(y)
            correct += int(right.sum())
        return {"loss": losses / len(images), "accuracy": correct / len(images)}

    def placement(self, session, feed):
        """Return the fields of `placed`, from the metadata of a step that is run without an update.

        `variables`: device of each in the order of creation. `ops`: device on which each op ran.
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
    """Yield the rows of endless batches, int64 [batch]; each worker shuffles all the data."""
    generator = np.random.default_rng([seed, task_index])
    order = np.zeros(0, np.int64)
    while True:
        while len(order) < batch:
            order = np.concatenate([order, generator.permutation(examples)])
        yield order[:batch]
        order = order[batch:]


def check_model_dir(directory, model):
    """Raise BadInput if the last checkpoint there is damaged or of another model."""
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


class Training(object):
    """Run and report one worker's steps of a model, and the chief's saves and evaluation."""

    def __init__(self, task, model):
        self.task, self.model, self.events = task, model, task.events
        self.limit = task.args.epochs * task.args.steps_per_epoch
        self.chief, self.directory = task.role.chief, None
        self.saver, self._initial = ReportingSaver(model, task.events), None
        if self.chief and task.args.model_dir:
            self.directory = task.args.model_dir
            check_model_dir(self.directory, model)
        self._rows = batches(
            len(task.data.x_train), task.args.seed, task.role.index, task.args.batch_size
        )
        self._step = self._steps = self._saved = 0

    def supervised(self):
        """Return Supervisor arguments that report events or are not in the guide."""
        return {
            "init_fn": self._keep_initial if self.events.enabled else None,
            "summary_writer": self.directory and ReportingWriter(self.directory, self.events),
            "saver": self.saver,
            "save_model_secs": self.task.args.save_model_secs,
            "save_summaries_secs": self.task.args.save_summaries_secs,
            # By default workers poll for the chief every 30 s, and threads get 120 s to end.
            "recovery_wait_secs": 0.2,
            "stop_grace_secs": 5,
        }

    def _keep_initial(self, session):
        self._initial = self.model.state(session)

    def begin(self, session):
        """Report the initial state, once the session is up; return the global step."""
        self.task.report_joined()
        if self.saver.restored:
            self.events.write("restored", **self.saver.restored)
        if self.events.enabled:
            if self.chief:
                self._report_weights("initial", session, self._initial or self.saver.restored)
            data = self.task.data
            first = self.model.feed(data.x_train[:1], data.y_train[:1])
            self.events.write("placed", **self.model.placement(session, first))
        self._step = self._saved = int(session.run(self.model.global_step))
        return self._step

    def step(self, supervisor, session):
        """Train on the next batch, save if a save is due, and return the global step."""
        args, batch = self.task.args, next(self._rows)
        feed = self.model.feed(self.task.data.x_train[batch], self.task.data.y_train[batch])
        self._steps += 1
        if self.events.enabled:
            step, loss = session.run(self.model.train_and_report, feed).tolist()
            where = {"step": self._steps, "global_step": int(step)}
            self.events.write_soon("step", loss=loss, examples=len(batch), **where)
            if args.audit_input:
                self.events.write("input", ids=batch.tolist(), **where)
        else:
            step = session.run(self.model.train_and_step, feed)
        if self.directory and args.save_every and step >= self._saved + args.save_every:
            self.save(supervisor, session)
            self._saved = step
        self._step = int(step)
        return self._step

    def save(self, supervisor, session):
        supervisor.saver.save(session, supervisor.save_path, global_step=self.model.global_step)

    def end(self, supervisor, session):
        """Run the chief's last duties.

        Asynchronous workers may still apply the step that they are running.
        """
        # The loop also ends when one of the supervisor's threads has failed. Raise that error.
        supervisor.coord.raise_requested_exception()
        if not self.chief or self._step < self.limit:
            return
        if self.events.enabled:
            self._report_weights("final", session, self.model.state(session))
        if self.task.args.evaluate:
            step = int(session.run(self.model.global_step))
            metrics = self.model.evaluate(session, self.task.data.x_test, self.task.data.y_test)
            self.events.write("evaluated", global_step=step, metrics=metrics)
        if self.directory:  # the Supervisor saves at time intervals only, not at the end
            self.save(supervisor, session)

    def finish(self):
        """Write `finished` after all services have stopped.

        Exit with code 1 if training ended too early.
        """
        if self._step < self.limit:  # the Supervisor takes some errors for the end of the data
            where = (self.task.name, self.task.role.task, self._step, self.limit)
            sys.exit("%s: %s stopped at global step %d of %d" % where)
        self.events.write("finished", global_step=self._step, steps=self._steps)

    def _report_weights(self, when, session, state):
        extra = {}
        if self.task.args.dump_weights:
            extra["npz"] = self.events.sibling("%s-%d.npz" % (when, state["global_step"]))
            np.savez(extra["npz"], *session.run(self.model.weights))
        keys = ("global_step", "iterations", "digest", "slots_digest")
        self.events.write("weights", when=when, **{key: state[key] for key in keys}, **extra)


def ending_at_lost_servers(events):
    """Return `workload.ending_at` for the errors of a lost parameter server."""
    return workload.ending_at(PEER_ERRORS, events)


class ReportingSaver(tf1.train.Saver):
    """A thread-safe Saver that reports every save and restore.

    The Supervisor saves from its own thread, and the training loop may save as well.
    """

    def __init__(self, model, events):
        super().__init__()
        self._model, self._events, self._lock = model, events, threading.Lock()
        self.restored = None  # fields of `restored`, as of the restore

    def save(self, sess, save_path, global_step=None, **kwargs):
        with self._lock:
            save = super().save
            path, seconds = workload.timed(save, sess, save_path, global_step, **kwargs)
        if self._events.enabled:
            # Read back from disk: other workers continue to train while this one saves.
            stored = tf.train.load_checkpoint(path)
            self._events.write(
                "checkpoint_saved",
                path=path,
                global_step=int(stored.get_tensor(self._model.global_step.op.name)),
                seconds=seconds,
                digest=self._digest(stored, self._model.weights),
                slots_digest=self._digest(stored, self._model.slots),
            )
        return path

    @staticmethod
    def _digest(stored, variables):
        return digests.digest([stored.get_tensor(v.op.name) for v in variables])

    def restore(self, sess, save_path):
        _, seconds = workload.timed(super().restore, sess, save_path)
        if self._events.enabled:
            # Now, before the other workers detect that the model is ready and change it.
            self.restored = dict(self._model.state(sess), path=save_path, seconds=seconds)


class ReportingWriter(tf1.summary.FileWriter):
    """A FileWriter that reports every summary that the Supervisor's thread has computed."""

    def __init__(self, directory, events):
        super().__init__(directory)
        self._directory, self._events = directory, events

    def add_summary(self, summary, global_step=None):
        super().add_summary(summary, global_step)
        if isinstance(summary, bytes):  # the Supervisor's own steps/s come as a protobuf
            self._events.write("summary", path=self._directory, global_step=int(global_step or 0))
