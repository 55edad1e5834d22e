"""Training step, evaluation and events of custom training loops, for any strategy.

The code that the tutorials custom_training and multi_worker_with_ctl share. Each trainer has its
own strategy, input sharding and checkpoint paths.
"""

import os

import numpy as np
import tensorflow as tf

from reference_trainers import keras_events, workload


def progress():
    """Return two variables to save: complete epochs, and steps done in the next epoch."""
    return (
        tf.Variable(tf.constant(0, tf.int64), name="epoch"),
        tf.Variable(tf.constant(0, tf.int64), name="step_in_epoch"),
    )


def position(args, epoch, step_in_epoch):
    """Return the (epoch, step) to start from.

    Raise BadInput if the checkpoint lies beyond the end of an epoch.
    """
    first = int(epoch.numpy()), int(step_in_epoch.numpy())
    if first[1] >= args.steps_per_epoch:
        raise workload.BadInput(
            "--steps-per-epoch: %d, but the checkpoint is at step %d of an epoch"
            % (args.steps_per_epoch, first[1])
        )
    return first


def watch_for_preemption(args, events, strategy, checkpoint, save):
    """Return a function to call before each step with the number of steps done in the epoch.

    After a preemption notice it makes all workers save and exit with code 42. The notice is a
    SIGTERM to any worker. The workers agree on the step before which they save. See
    https://www.tensorflow.org/guide/migrate/fault_tolerance.
    """
    if not args.preemption:
        return lambda _: None
    if not args.model_dir:
        raise workload.BadInput("--preemption: there is no --model-dir to save to")

    def save_and_report():
        save()
        events.write("preempted", global_step=int(checkpoint.optimizer.iterations.numpy()))

    # The handler reads the chief's checkpoint on every worker, so all workers must restore the same
    # count of calls.
    chiefs = os.path.join(args.model_dir, "ckpt")
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        strategy.cluster_resolver,
        tf.train.CheckpointManager(checkpoint, chiefs, max_to_keep=1),
        termination_config=tf.distribute.experimental.TerminationConfig(save_fn=save_and_report),
    )

    def before_step(done):
        checkpoint.step_in_epoch.assign(done)
        handler.save_checkpoint_if_preempted()

    return before_step


def is_due(args, step):
    """Return True if a mid-epoch checkpoint is due after this step.

    After the last step the epoch counter is updated first, and the loop saves after that.
    """
    return args.save_every and step % args.save_every == 0 and step < args.steps_per_epoch


def make_train_step(strategy, model, optimizer, accuracy, global_batch, jit):
    """Return a function that runs one step on all replicas.

    It returns the loss over the global batch, and for each local replica the `losses_of` its own
    share of the batch. `jit`: the part that XLA compiles, see --jit.
    """
    # Not reduced here: a replica does not know how many examples the other replicas have.
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function(jit_compile=True if jit == "gradients" else None)
    def compute_gradients(images, labels):
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            losses = loss_of_each(labels, predictions)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
            regularization = tf.add_n(model.losses) if model.losses else tf.zeros([])
            # Every replica computes the full regularization loss, and the gradients are summed.
            loss += tf.nn.scale_regularization_loss(regularization)
        gradients = tape.gradient(loss, model.trainable_variables)
        return gradients, predictions, loss, tf.reduce_mean(losses) + regularization

    def replica_step(images, labels):
        gradients, predictions, loss, own_loss = compute_gradients(images, labels)
        # Sums the gradients over all replicas before it applies them.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        accuracy.update_state(labels, predictions)
        return loss, keras_events.losses_of(own_loss, labels)

    @tf.function(jit_compile=True if jit == "step" else None)
    def train_step(batch):
        losses, own = strategy.run(replica_step, args=tuple(batch[:2]))
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        return loss, strategy.experimental_local_results(own)

    return train_step


def make_evaluation(strategy, model, batches, steps):
    """Return a function that returns mean loss and accuracy over `steps` batches on all replicas.

    `batches`: an endless iterator of distributed batches, shared by all passes. Closing an iterator
    can take seconds, during which tf.data's tuner sleeps.
    """
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(images, labels):
        predictions = model(images, training=False)
        right = tf.equal(tf.argmax(predictions, axis=-1), labels)
        return tf.stack(
            [
                tf.reduce_sum(loss_of_each(labels, predictions)),
                tf.reduce_sum(tf.cast(right, tf.float32)),
                tf.cast(tf.shape(labels)[0], tf.float32),
            ]
        )

    @tf.function
    def test_step(batch):
        sums = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

    def evaluate():
        sums = [test_step(next(batches)).numpy() for _ in range(steps)]
        loss, right, examples = np.sum(sums, axis=0)
        return {"loss": float(loss / examples), "accuracy": float(right / examples)}

    return evaluate


class EventReporter(object):
    """Write the events of a training loop; `steps` counts the steps of this task."""

    def __init__(self, events, args, strategy, model, optimizer):
        self._events, self._args, self._strategy = events, args, strategy
        self._model, self._optimizer = model, optimizer
        self.steps = 0
        self.global_step = int(optimizer.iterations.numpy())

    def step(self, own, batch):
        self.steps += 1
        self.global_step += 1
        if not self._events.enabled:
            return
        where = {"step": self.steps, "global_step": self.global_step}
        keras_events.report_step(self._events, own, where)
        if self._args.audit_input:
            parts = self._strategy.experimental_local_results(batch[2])
            ids = [row for rows in parts for row in rows.numpy().tolist()]
            self._events.write("input", ids=ids, **where)

    def epoch(self, epoch, steps, metrics):
        self._events.write(
            "epoch", epoch=epoch, steps=steps, metrics=metrics, global_step=self.global_step
        )
        self.weights("epoch")

    def weights(self, when):
        if self._events.enabled:
            keras_events.report_weights(
                self._events,
                when,
                self.global_step,
                self._model,
                self._strategy,
                self._optimizer,
                self._args.dump_weights,
            )
