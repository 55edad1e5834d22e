"""Events from inside Keras' fit: the loss of each batch, each epoch's metrics, state digests.

Keras passes a callback the running mean of the loss, and under a strategy it reduces everything
that train_step returns over all replicas. BatchProbe therefore extracts the loss of this task's own
batch separately. It adds nothing to the collectives, and the trainers create it only when
TRAINER_EVENTS is set.
"""
# ruff: noqa: ARG002 (the hooks have Keras' signatures)

import numpy as np
import tensorflow as tf

from reference_trainers.support import digests, keras_support

OWN = "own"  # key in the result of train_step


def loss_and_examples(own, times):
    """Return mean loss and size of this task's own batch, given `losses_of` each of its parts.

    `times`: factor that turns a mean over parts into their sum.
    """
    # A plain number: numpy takes ten times as long for so few values, and this runs at every step.
    both = sum(part.numpy().item() for part in own)
    return {"loss": both.real / both.imag, "examples": round(both.imag * times)}


def losses_of(mean, batch):
    """Return sum of losses and size of a batch as real and imaginary part of a complex64 scalar.

    Keras sums all elements of what the replicas return, so only a scalar comes through unchanged.
    """
    examples = tf.cast(tf.shape(batch)[0], tf.float32)
    return tf.complex(mean * examples, examples)


class BatchProbe(object):
    """Call `on_step(own)` after each step, with `losses_of` each part of this task's batch.

    The result of train_step is reduced over all replicas. If all replicas are in this task, the
    reduced result is that of its own batch, so it includes `own`, which is removed before Keras
    sees it. `times` corrects for the kind of reduction. Otherwise a variable per local replica
    holds the value. A callback that reads a variable could report each step as well, but that adds
    a few percent to a small step, because the caches are cold after a step.
    """

    def __init__(self, model, audit):
        """Create the probe outside `strategy.scope()`: its variables belong to one replica each."""
        self._local = keras_support.local_replicas(model.distribute_strategy)
        self._replicas = model.distribute_strategy.num_replicas_in_sync
        self._divisor = self._replicas if keras_support.divides_losses() else 1
        self._together = self._replicas == self._local
        self._training = set()  # replicas that trace train_step; evaluation also computes a loss
        self._own = {}  # by local replica: their traces alternate
        self._kept = [] if self._together else self._variables(tf.zeros([], tf.complex64), [])
        self._rows = self._variables(tf.zeros([0], tf.int64), [None]) if audit else []
        self._model = model
        self._train_step, self._compute_loss = model.train_step, model.compute_loss
        self._make_train_function = model.make_train_function
        # Keras 3 returns the mean over replicas, the other flavors return the sum.
        self.times = self._replicas if self._together and keras_support.is_keras_3() else 1
        model.train_step, model.compute_loss = self.train_step, self.compute_loss
        model.make_train_function = self.make_train_function
        self.on_step = lambda own: None  # noqa: ARG005 (set by its user)

    def _variables(self, initial, shape):
        """Return one variable for each of this task's replicas."""
        return [tf.Variable(initial, shape=shape, trainable=False) for _ in range(self._local)]

    def train_step(self, batch):
        replica = self._replica()
        if self._rows:
            self._rows[replica].assign(batch[2])
        self._training.add(replica)
        try:
            logs = self._train_step(tuple(batch[:2]))
        finally:
            self._training.discard(replica)
        if self._together:
            return dict(logs, **{OWN: self._own[replica]})
        self._kept[replica].assign(self._own[replica])
        return logs

    def _replica(self):
        """Return the index of the running local replica, or -1 while Keras 3 infers shapes."""
        context = tf.distribute.get_replica_context()
        if context is None:
            return -1
        return int(tf.get_static_value(context.replica_id_in_sync_group)) % self._local

    def compute_loss(self, x, y, *args, **kwargs):
        loss = self._compute_loss(x, y, *args, **kwargs)
        replica = self._replica()
        if replica in self._training:
            # Keras has divided by it, so that a sum over the replicas is the mean.
            mean = tf.cast(loss, tf.float32) * self._divisor
            self._own[replica] = losses_of(mean, y)
        return loss

    def make_train_function(self, force=False):
        """Return Keras' function for one step, extended by the call of `on_step`."""
        self._make_train_function(force)
        keras_function = self._model.train_function

        def train_function(iterator):
            logs = keras_function(iterator)
            if self._together:
                self.on_step([logs.pop(OWN)])
            else:
                self.on_step([kept.value() for kept in self._kept])
            return logs

        self._model.train_function = train_function
        return train_function

    def rows(self):
        """Return the rows of x_train in the last batch; empty without --audit-input."""
        return [row for rows in self._rows for row in rows.numpy().tolist()]


class EventsCallback(tf.keras.callbacks.Callback):
    """Write step, input, epoch and weights events.

    Place it after Backup, so that its events follow the backup.
    """

    def __init__(self, events, args, probe):
        super().__init__()
        # Without this attribute Keras would convert the reduced logs at every step.
        self._supports_tf_logs = True
        self._events, self._audit, self._probe = events, args.audit_input, probe
        self._dump = args.dump_weights
        self.steps = 0  # of this incarnation
        self._global_step = 0
        self._epoch_began = 0
        probe.on_step = self.on_step

    def on_train_begin(self, logs=None):
        self._global_step = keras_support.iterations(self.model)
        self.weights("initial")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_began = self.steps

    def on_step(self, own):
        self.steps += 1
        self._global_step += 1
        where = {"step": self.steps, "global_step": self._global_step}
        report_step(self._events, own, where, self._probe.times)
        if self._audit:
            self._events.write("input", ids=self._probe.rows(), **where)

    def on_epoch_end(self, epoch, logs=None):
        self._events.write(
            "epoch",
            epoch=epoch + 1,
            steps=self.steps - self._epoch_began,
            metrics={name: float(value) for name, value in (logs or {}).items()},
            global_step=self._global_step,
        )
        self.weights("epoch")

    def weights(self, when):
        """Write `weights`, and return the model's state."""
        return report_weights(
            self._events,
            when,
            self._global_step,
            self.model,
            self.model.distribute_strategy,
            dump=self._dump,
        )


def report_step(events, own, where, times=1):
    """Write `step` once its numbers are available; for `own` and `times` see BatchProbe."""
    events.write_soon("step", later=lambda: loss_and_examples(own, times), **where)


def report_weights(events, when, global_step, model, strategy, optimizer=None, dump=False):
    """Write the digest of the model's state, and return it; `dump` saves the weights as well.

    If this task has several replicas, `copies` has the digest of each replica's weights.
    """
    extra = {}
    if keras_support.local_replicas(strategy) > 1:
        extra["copies"] = digests.copies(model.trainable_variables)
    if dump:
        extra["npz"] = events.sibling("%s-%d.npz" % (when, global_step))
        np.savez(extra["npz"], *keras_support.weights(model))
    state = keras_support.state(model, optimizer)
    events.write("weights", when=when, global_step=global_step, **state, **extra)
    return state
