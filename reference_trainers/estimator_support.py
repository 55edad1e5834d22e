"""Helpers of the Estimator trainer beyond the document's code: events, examples, lost peers.

An Estimator builds its own graph and runs its own loop. A hook reports what happens there. The hook
is created with the tensors of this task's replica and wraps the graph's Saver.
"""

import contextlib
import logging
import os
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf

from reference_trainers import digests, workload

tf1 = tf.compat.v1
TOGETHER = 16  # batches for which TensorFlow waits for Python's lock once
THROTTLE_S = 0.2  # an evaluator's polling interval for new checkpoints


def need_estimator(events):
    """Write `unsupported` and end with exit code 77 if TensorFlow has no tf.estimator."""
    try:
        tf.estimator.Estimator  # noqa: B018
    except AttributeError as error:
        reason = "TensorFlow %s: %s" % (tf.__version__, error)
        events.write("unsupported", reason=reason)
        print(reason, file=sys.stderr, flush=True)
        sys.exit(workload.UNSUPPORTED)


# --- data ----------------------------------------------------------------------------------------


def examples(x, y, row):
    """Return the features and labels of these rows.

    Features are {image: float32 [batch, 28, 28, 1] in 0..1, row: int64 [batch]}. Labels are int64
    [batch].
    """
    return scaled(row, *look_up(x, y, row))


def batches(x, y, rows):
    """Return `examples` of each element of rows, an endless data set of int64 [batch]."""
    many = rows.batch(TOGETHER).map(lambda row: (row,) + look_up(x, y, row))
    return many.unbatch().map(scaled).prefetch(TOGETHER)


def look_up(x, y, row):
    """Return the uint8 images and int64 labels at these rows.

    It uses numpy because constants would be part of the graph, which is sent to the server and
    written next to each checkpoint.
    """
    image, label = tf.numpy_function(lambda r: (x[r], y[r]), [row], (tf.uint8, tf.int64))
    image.set_shape(row.shape + x.shape[1:])
    label.set_shape(row.shape)
    return image, label


def scaled(row, image, label):
    image = tf.cast(tf.expand_dims(image, -1), tf.float32) / 255.0
    return {"image": image, "row": row}, label


def order_from(directory, args, data, seed, shards):
    """Return the rows of all batches, int64, from the step of the last checkpoint on."""
    path, step = tf.train.latest_checkpoint(directory), 0
    if path:
        try:
            step = int(tf.train.load_checkpoint(path).get_tensor("global_step"))
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise workload.BadInput(
                "--model-dir: the checkpoint %s is damaged: %s" % (path, error)
            ) from error
    return workload.by_epoch_order(
        len(data.x_train),
        seed,
        step // args.steps_per_epoch,
        step % args.steps_per_epoch,
        args.epochs,
        args.steps_per_epoch,
        args.batch_size * shards,
    )


# --- checkpoints ---------------------------------------------------------------------------------


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


@contextlib.contextmanager
def model_directory(args, role):
    """Yield (directory, RunConfig arguments for saving).

    On exit, remove all but the chief's checkpoints. Every worker saves, and all but the chief save
    to a directory below the chief's. Without --model-dir a cluster saves nothing. A single process
    saves to a temporary directory, because it could not evaluate otherwise.
    """
    saving = {"save_checkpoints_steps": args.save_every or args.steps_per_epoch}
    if not args.model_dir:
        if role.cluster:
            saving = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
            # Set save_summary_steps to None only here: TensorFlow saves no checkpoints without
            # summaries.
            saving["save_summary_steps"] = None
        with tempfile.TemporaryDirectory() as directory:
            yield directory, saving
        return
    try:
        os.makedirs(args.model_dir, exist_ok=True)
    except OSError as error:
        raise workload.BadInput(
            "--model-dir: %s cannot be made: %s" % (args.model_dir, error.strerror)
        ) from error
    yield args.model_dir, saving
    shutil.rmtree(
        os.path.join(args.model_dir, "tmp_" + role.task.replace("/", "_")), ignore_errors=True
    )


# --- lost peers ----------------------------------------------------------------------------------


class PeerLost(Exception):
    """A step failed because another worker is gone."""


class LostPeers(logging.Handler):
    """A log handler that ends training when TensorFlow logs that it lost a peer and retries.

    TensorFlow would retry forever: once aborted, the collectives of a process remain aborted
    ("Restart your program to reset"), even when the lost worker is back.
    """

    def __init__(self, events):
        super().__init__(logging.INFO)
        self._events = events

    def emit(self, record):
        errors = (tf.errors.AbortedError, tf.errors.UnavailableError)
        error = record.args[-1] if record.args and isinstance(record.args, tuple) else None
        if isinstance(error, errors):
            reason = workload.reason(error)
            self._events.write("peer_lost", error=reason)
            raise PeerLost(reason)


@contextlib.contextmanager
def ending_at_lost_peers(events, role):
    """Write `peer_lost` when another worker is gone, and end this task with exit code 1."""
    tf1.logging.set_verbosity(tf1.logging.INFO)
    logger = tf.get_logger()
    if len(role.workers) > 1:
        logger.addHandler(LostPeers(events))
    try:
        yield
    except PeerLost as error:
        print("PeerLost: %s" % error, file=sys.stderr, flush=True)
        # Exit at once: when TensorFlow closes its session, it may wait for the lost worker.
        os._exit(1)


# --- events --------------------------------------------------------------------------------------


class EventReporter(object):
    """Step counts of this incarnation, which outlive the graph of one training run."""

    def __init__(self, events, args, role, replicas):
        self.events, self.args, self.role, self.replicas = events, args, role, replicas
        self.steps = self.global_step = 0
        self.evaluated = 0  # global step of the last evaluation, possibly another process's


class EventsHook(tf1.train.SessionRunHook):
    """Report session, steps, epochs, saves and restores, and reject a directory of another model.

    An epoch has --steps-per-epoch steps. Its loss is the mean of the losses that the Estimator
    reports. Its accuracy covers all workers.
    """

    def __init__(self, reporter, losses=None, logits=None, labels=None, rows=()):
        """Take this replica's tensors.

        They are losses float32 [batch], logits [batch, 10], labels and rows int64 [batch]. For a
        model function without them, the mean loss of all workers serves as the loss of each.
        """
        self._reporter, self._events, self._args = reporter, reporter.events, reporter.args
        # Fetch only tensors that the graph has anyway: one more op per step takes longer than
        # numpy.
        self._fetched, self._accuracy = {}, None
        if losses is not None:
            self._fetched = {"losses": losses, "logits": logits, "labels": labels}
            # A metric adds up over workers. It hears of a whole epoch at once.
            self._epoch = tf1.placeholder(tf.float32, [2])  # accuracy, examples
            self._accuracy, self._update = tf1.metrics.mean(self._epoch[0], self._epoch[1])
        if reporter.args.audit_input:
            self._fetched["rows"] = rows
        self._losses, self._examples, self._right = [], 0, 0  # of the epoch
        self._restored = {}

    def begin(self):
        """Run when the graph is complete, before its Saver is built and before any write."""
        self.global_step = tf1.train.get_global_step()
        self.weights = tf1.trainable_variables()
        others = [self.global_step] + self.weights
        self.slots = [v for v in tf1.global_variables() if all(v is not o for o in others)]
        if self._args.model_dir:
            check_model_dir(self._args.model_dir, self)
        self._fetched["loss"] = tf1.get_collection(tf1.GraphKeys.LOSSES)[-1]  # over all workers
        counters = tf1.get_collection(tf1.GraphKeys.METRIC_VARIABLES)
        self._begin_again = [v.initializer for v in counters]
        # Saving listeners are not supported under this strategy.
        (self._saver,) = tf1.get_collection(tf1.GraphKeys.SAVERS)
        self._save, self._restore = self._saver.save, self._saver.restore
        self._saver.save, self._saver.restore = self.save, self.restore

    def save(self, sess, save_path, global_step, **kwargs):
        path, seconds = workload.timed(self._save, sess, save_path, global_step, **kwargs)
        where = {"path": path, "global_step": int(global_step)}
        self._events.write("checkpoint_saved", seconds=seconds, **where)
        return path

    def restore(self, sess, save_path):
        _, seconds = workload.timed(self._restore, sess, save_path)
        self._restored = {"path": save_path, "seconds": seconds}

    def after_create_session(self, session, coord):  # noqa: ARG002 (the hook's signature)
        reporter = self._reporter
        reporter.global_step = int(session.run(self.global_step))
        self._events.write(
            "joined",
            cluster=reporter.role.cluster,
            workers=len(reporter.role.workers),
            chief=reporter.role.chief,
            backend=self._args.backend,
            replicas=reporter.replicas,
        )
        if self._restored and self._events.enabled:
            state = self._state(session)
            where = {**self._restored, "global_step": reporter.global_step}
            self._events.write("restored", **where, **state)
        self._report_weights("initial", session)

    def before_run(self, run_context):  # noqa: ARG002
        if not self._events.enabled:
            return None
        return tf1.train.SessionRunArgs(self._fetched)

    def after_run(self, run_context, run_values):
        reporter = self._reporter
        reporter.steps += 1
        reporter.global_step += 1
        if not self._events.enabled:
            return
        found = run_values.results
        where = {"step": reporter.steps, "global_step": reporter.global_step}
        self._events.write_soon("step", later=lambda: self._values(found), **where)
        if self._args.audit_input:
            self._events.write("input", ids=found["rows"].tolist(), **where)
        if reporter.global_step % self._args.steps_per_epoch == 0:
            self._end_of_epoch(run_context.session)

    def _values(self, found):
        """Return the fields of a step event, and count the step for its epoch."""
        self._losses.append(float(found["loss"]))
        if "losses" not in found:
            return {"loss": float(found["loss"]), "examples": self._args.batch_size}
        labels = found["labels"]
        self._examples += len(labels)
        self._right += int((found["logits"].argmax(axis=1) == labels).sum())
        return {"loss": float(found["losses"].mean()), "examples": len(labels)}

    def _end_of_epoch(self, session):
        self._events.flush()  # pending step events have not been counted yet
        step = self._reporter.global_step
        metrics = {"loss": float(np.mean(self._losses))}
        if self._accuracy is not None:
            own = [self._right / self._examples, self._examples]
            session.run(self._update, {self._epoch: own})
            metrics["accuracy"] = float(session.run(self._accuracy))
            session.run(self._begin_again)
            self._examples = self._right = 0
        epoch = step // self._args.steps_per_epoch
        steps, self._losses = len(self._losses), []
        self._events.write("epoch", epoch=epoch, steps=steps, metrics=metrics, global_step=step)
        self._report_weights("epoch", session)

    def end(self, session):
        self._report_weights("final", session)

    def _state(self, session):
        step, weights, slots = session.run([self.global_step, self.weights, self.slots])
        found = {"digest": digests.digest(weights), "slots_digest": digests.digest(slots)}
        return dict(found, iterations=int(step))

    def _report_weights(self, when, session):
        if not self._events.enabled:
            return
        extra, step = {}, self._reporter.global_step
        if self._args.dump_weights:
            extra["npz"] = self._events.sibling("%s-%d.npz" % (when, step))
            np.savez(extra["npz"], *session.run(self.weights))
        state = self._state(session)
        self._events.write("weights", when=when, global_step=step, **state, **extra)


def metrics_of(result):
    """Return the result of Estimator.evaluate as floats for JSON, without the global step."""
    return {k: float(v) for k, v in result.items() if k != "global_step"}


def reporting_exporter(reporter):
    """Return an exporter that exports nothing and reports the result of each evaluation."""

    class ReportingExporter(tf.estimator.Exporter):
        name = "events"

        def export(self, estimator, export_path, checkpoint_path, eval_result, *_, **__):  # noqa: ARG002
            reporter.evaluated = int(eval_result["global_step"])
            reporter.events.write(
                "evaluated",
                path=checkpoint_path,
                global_step=reporter.evaluated,
                metrics=metrics_of(eval_result),
            )

    return ReportingExporter()
