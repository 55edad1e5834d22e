"""Events from inside Keras' fit: the loss of each batch, each epoch's metrics, state digests.

Keras tells a callback the running mean of the loss, and under a strategy it reduces everything
that train_step returns over all replicas. So the loss of this task's own batch takes another way:
see BatchProbe. Nothing is added to the collectives, and nothing here exists when TRAINER_EVENTS is
unset.
"""
# ruff: noqa: ARG002 (the hooks have Keras' signatures)

import os
import types

import numpy as np
import tensorflow as tf

from reference_trainers import keras_support

OWN = "own"  # among what train_step returns


def loss_and_examples(own, times):
    """Mean loss over this task's own batch and its size, from what `losses_of` gave for its parts.

    `times`: what is a mean over parts instead of a sum has to be taken so often.
    """
    # A plain number: numpy takes ten times as long over so few, and this is part of every step.
    both = sum(part.numpy().item() for part in own)
    return {"loss": both.real / both.imag, "examples": round(both.imag * times)}


def losses_of(mean, batch):
    """Sum of the losses of a batch, and its size: real and imaginary part of a complex64 scalar.

    Keras adds up all elements of what replicas give, so that nothing but a scalar comes through.
    """
    examples = tf.cast(tf.shape(batch)[0], tf.float32)
    return tf.complex(mean * examples, examples)


class BatchProbe(object):
    """After each step calls `on_step(own)`, with `losses_of` each part of this task's batch.

    What train_step returns is reduced over all replicas. Where all are in this task, that is its
    own batch, so it takes `own` along, and Keras never sees it; `times` is what the reduction
    leaves to be done. Otherwise a variable for each of this task's replicas keeps it. A callback
    that reads a variable could tell of each step as well, but that costs a small step some percent:
    after a step the caches are cold.
    """

    def __init__(self, model, audit):
        """Make it outside `strategy.scope()`: its variables belong to one replica each."""
        self._local = keras_support.local_replicas(model.distribute_strategy)
        self._replicas = model.distribute_strategy.num_replicas_in_sync
        self._together = self._replicas == self._local
        self._training = set()  # replicas whose train_step is traced; evaluation has losses as well
        self._own = {}  # by local replica: their traces take turns
        self._kept = [] if self._together else self._variables(tf.zeros([], tf.complex64), [])
        self._rows = self._variables(tf.zeros([0], tf.int64), [None]) if audit else []
        self._model = model
        self._train_step, self._compute_loss = model.train_step, model.compute_loss
        self._make_train_function = model.make_train_function
        # Keras 3 gives the mean over replicas, the others the sum.
        self.times = self._replicas if self._together and keras_support.is_keras_3() else 1
        model.train_step, model.compute_loss = self.train_step, self.compute_loss
        model.make_train_function = self.make_train_function
        self.on_step = lambda _: None

    def _variables(self, initial, shape):
        """One for each of this task's replicas."""
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
        """Which one of this task's replicas is running; -1 where Keras 3 tries the shapes out."""
        context = tf.distribute.get_replica_context()
        if context is None:
            return -1
        return int(tf.get_static_value(context.replica_id_in_sync_group)) % self._local

    def compute_loss(self, x, y, *args, **kwargs):
        loss = self._compute_loss(x, y, *args, **kwargs)
        replica = self._replica()
        if replica in self._training:
            # Keras has divided by the number of replicas, so that a sum over them is the mean.
            mean = tf.cast(loss, tf.float32) * self._replicas
            self._own[replica] = losses_of(mean, y)
        return loss

    def make_train_function(self, force=False):
        """Keras' function for one step, and what to do after it."""
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
        """Rows of x_train in the last batch; empty without --audit-input."""
        return [row for rows in self._rows for row in rows.numpy().tolist()]


class EventsCallback(tf.keras.callbacks.Callback):
    """Writes step, input, epoch and weights events.

    Place it after Backup: what it tells has then happened.
    """

    def __init__(self, events, args, probe):
        super().__init__()
        # Keras would convert the reduced logs at every step for callbacks that do not say this.
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
        self.report_epoch(epoch, logs)
        self.weights("epoch")

    def report_epoch(self, epoch, logs):
        self._events.write(
            "epoch",
            epoch=epoch + 1,
            steps=self.steps - self._epoch_began,
            metrics={name: float(value) for name, value in (logs or {}).items()},
            global_step=self._global_step,
        )

    def weights(self, when):
        """Tell of the model's state, and give it."""
        return report_weights(
            self._events,
            when,
            self._global_step,
            self.model,
            self.model.distribute_strategy,
            dump=self._dump,
        )


def report_step(events, own, where, times=1):
    """Write `step`, later, when its numbers are there; `own` and `times` as BatchProbe has them."""
    events.write_soon("step", later=lambda: loss_and_examples(own, times), **where)


class EpochsCallback(EventsCallback):
    """Writes epoch and weights events, and `checkpoint_saved` for each backup: no word of steps.

    For fit under ParameterServerStrategy, which refuses callbacks that want to hear of a batch.
    How many steps were made the optimizer says, by its updates. `weights` come with each backup,
    and with the last epoch.
    """

    def __init__(self, events, args, backup):
        """`backup`: the callback, None where nothing is saved."""
        super().__init__(events, args, types.SimpleNamespace())
        self._backup = backup

    def on_epoch_end(self, epoch, logs=None):
        iterations = keras_support.iterations(self.model)
        self.steps += iterations - self._global_step
        self._global_step = iterations
        self.report_epoch(epoch, logs)
        # These are all weights, from the servers, which costs percents of a short epoch.
        last = epoch + 1 == self.params["epochs"]
        state = self.weights("epoch") if last or self._backup else {}
        path = self._backup and tf.train.latest_checkpoint(
            os.path.join(self._backup.backup_dir, "chief")
        )
        if path:
            where = {"path": path, "global_step": self._global_step}
            self._events.write("checkpoint_saved", seconds=self._backup.seconds, **where, **state)


def report_weights(events, when, global_step, model, strategy, optimizer=None, dump=False):
    """Write the digest of the model's state, and give it; `dump` keeps the weights as well.

    Where this task has several replicas, `copies` has the digest of each one's weights.
    """
    extra = {}
    if keras_support.local_replicas(strategy) > 1:
        extra["copies"] = keras_support.copies(model, strategy)
    if dump:
        extra["npz"] = events.beside("%s-%d.npz" % (when, global_step))
        np.savez(extra["npz"], *keras_support.weights(model))
    state = keras_support.state(model, optimizer)
    events.write("weights", when=when, global_step=global_step, **state, **extra)
    return state
