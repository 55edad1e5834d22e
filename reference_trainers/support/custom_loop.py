"""Progress and events of custom training loops, for any strategy.

Each trainer has its own strategy, training step, input sharding and checkpoint paths.
"""

import tensorflow as tf

from reference_trainers.support import keras_events, workload


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
