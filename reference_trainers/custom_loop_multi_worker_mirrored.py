"""N workers in step, in a loop of one's own: MultiWorkerMirroredStrategy with strategy.run.

Implements https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl: a step is one
tf.function; a replica divides its loss by the global batch, so that the gradients' sum is that of
the mean; epoch and step are part of the checkpoint, which every worker saves, the chief to the real
path and the others to a temporary one. In three things it differs, without which the document's
program loses work: the checkpoint holds the optimizer too, counts an epoch before it is saved, and
lies where a restarted run finds it. Without TF_CONFIG it is a cluster of one.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf

from reference_trainers import (
    BY_NAME,
    keras_checkpoints,
    keras_events,
    keras_support,
    multi_worker,
    roles,
    workload,
)
from reference_trainers.events import EventWriter

NAME = "custom_loop_multi_worker_mirrored"


def main():
    args = workload.parser(NAME, __doc__, BY_NAME[NAME].flags).parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    events.write(
        "started", pid=os.getpid(), trainer=NAME, seed=args.seed, **keras_support.versions()
    )
    data = workload.load_data(args.data)
    with multi_worker.telling_of_lost_peers(events, role):
        run(args, role, events, data)


def run(args, role, events, data):
    # First of all TensorFlow: this starts the server and waits until every worker has joined.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[
                args.backend.upper()
            ]
        )
    )
    replicas = strategy.num_replicas_in_sync
    multi_worker.tell_joined(events, role, args.backend, replicas)
    global_batch = args.batch_size * replicas
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_cnn_model()
        optimizer = keras_support.build_optimizer(args, model)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    train_step = make_train_step(strategy, model, optimizer, accuracy, global_batch)
    evaluate = make_evaluation(strategy, model, data, global_batch, args)

    # What a restarted run has to know: epochs that are complete, steps done in the one after them.
    epoch = tf.Variable(tf.constant(0, tf.int64), name="epoch")
    step_in_epoch = tf.Variable(tf.constant(0, tf.int64), name="step_in_epoch")
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=optimizer, epoch=epoch, step_in_epoch=step_in_epoch
    )
    save = restore(args, role, events, checkpoint) if args.model_dir else lambda: None
    teller = Teller(events, args, strategy, model, optimizer)
    teller.weights("initial")

    first = int(epoch.numpy()), int(step_in_epoch.numpy())
    if first[1] >= args.steps_per_epoch:
        raise workload.BadInput(
            "--steps-per-epoch: %d, but the checkpoint is at step %d of an epoch"
            % (args.steps_per_epoch, first[1])
        )
    train = keras_support.training_dataset(data, args, global_batch, *first)
    iterator = iter(distributed(strategy, train, args))
    while epoch.numpy() < args.epochs:
        accuracy.reset_state()
        total_loss, steps_before = 0.0, teller.steps
        while step_in_epoch.numpy() < args.steps_per_epoch:
            batch = next(iterator)
            loss, own = train_step(batch)
            total_loss += loss
            step_in_epoch.assign_add(1)
            teller.step(own, batch)
            if is_due(args, int(step_in_epoch.numpy())):
                save()
        steps = teller.steps - steps_before
        metrics = {"loss": float(total_loss) / steps, "accuracy": float(accuracy.result())}
        if args.evaluate:
            metrics.update({"val_" + name: value for name, value in evaluate().items()})
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        print("Epoch %d of %d: %s" % (epoch.numpy(), args.epochs, metrics), flush=True)
        teller.epoch(int(epoch.numpy()), steps, metrics)
        save()

    teller.weights("final")
    if args.evaluate:
        events.write("evaluated", global_step=teller.global_step, metrics=evaluate())
    multi_worker.wait_for_all(strategy)
    events.write("finished", global_step=teller.global_step, steps=teller.steps)


def is_due(args, step):
    """Whether to save after that step of an epoch; after the last one the epoch counts first."""
    return args.save_every and step % args.save_every == 0 and step < args.steps_per_epoch


def distributed(strategy, dataset, args):
    """The data set, of global batches, divided among the workers."""
    return strategy.experimental_distribute_dataset(multi_worker.sharded(dataset, args.autoshard))


def make_train_step(strategy, model, optimizer, accuracy, global_batch):
    """The function that makes one step on all workers.

    It gives the loss over the global batch, and [loss, examples] of this task's own share.
    """
    # Not reduced: a replica does not know how many examples the others have.
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            losses = loss_of_each(labels, predictions)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        # This sums them over all replicas first.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        accuracy.update_state(labels, predictions)
        own = tf.stack([tf.reduce_mean(losses), tf.cast(tf.shape(labels)[0], tf.float32)])
        return loss, own

    @tf.function
    def train_step(batch):
        losses, own = strategy.run(replica_step, args=tuple(batch[:2]))
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        return loss, strategy.experimental_local_results(own)[0]

    return train_step


def make_evaluation(strategy, model, data, global_batch, args):
    """The function that gives mean loss and accuracy over the whole test set, shared by all."""
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    dataset, steps = keras_support.test_dataset(data, global_batch)
    # One iterator for all passes: to close one can take seconds, in which tf.data's tuner sleeps.
    iterator = iter(distributed(strategy, dataset.repeat(), args))

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
        sums = [test_step(next(iterator)).numpy() for _ in range(steps)]
        loss, right, examples = np.sum(sums, axis=0)
        return {"loss": float(loss / examples), "accuracy": float(right / examples)}

    return evaluate


def restore(args, role, events, checkpoint):
    """Restore the last checkpoint, if there is one; gives what saves the next."""
    optimizer = checkpoint.optimizer
    keras_checkpoints.model_directory(args.model_dir)
    keras_checkpoints.restore_and_tell(args, checkpoint, events, checkpoint.model, optimizer)
    own_directory = multi_worker.write_path(os.path.join(args.model_dir, "ckpt"), role)
    manager = tf.train.CheckpointManager(checkpoint, own_directory, max_to_keep=1)

    def save():
        """Every worker takes part, for reading some variables is a collective of all."""
        global_step = int(optimizer.iterations.numpy())
        events.write("checkpoint_saved", path=manager.save(), global_step=global_step)
        multi_worker.remove_temporary(own_directory, role)

    return save


class Teller(object):
    """Events of the loop; its counts are of this task's own steps."""

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
        self._events.write_soon(
            "step",
            loss=lambda: own.numpy().tolist()[0],
            examples=lambda: int(own.numpy()[1]),
            **where,
        )
        if self._args.audit_input:
            (rows,) = self._strategy.experimental_local_results(batch[2])
            self._events.write("input", ids=rows.numpy().tolist(), **where)

    def epoch(self, epoch, steps, metrics):
        self._events.write(
            "epoch", epoch=epoch, steps=steps, metrics=metrics, global_step=self.global_step
        )
        self.weights("epoch")

    def weights(self, when):
        if self._events.enabled:
            keras_events.tell_weights(
                self._events,
                when,
                self.global_step,
                self._model,
                self._optimizer,
                self._args.dump_weights,
            )


if __name__ == "__main__":
    workload.run(main, NAME)
