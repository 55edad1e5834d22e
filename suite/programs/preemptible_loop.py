"""Train in a custom loop that saves and exits when a worker gets SIGTERM, and then resumes.

For mwms/preemption: with the PreemptionCheckpointHandler of
https://www.tensorflow.org/guide/migrate/fault_tolerance, under MultiWorkerMirroredStrategy, or, for
one process, under MirroredStrategy. The steps are those of the reference trainers.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import (
    custom_loop,
    keras_checkpoints,
    keras_events,
    keras_support,
    multi_worker,
    roles,
    workload,
)
from reference_trainers.support.events import EventWriter

NAME = "preemptible_loop"
HANDLER = tf.distribute.experimental.PreemptionCheckpointHandler
FLAGS = ("backend", "devices", "model", "precision", "order", "optimizer", "learning-rate")


def main():
    parser = workload.parser(NAME, __doc__, FLAGS)
    parser.set_defaults(audit_input=False, dump_weights=False, save_every=0)
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    events.write(
        "started", pid=os.getpid(), trainer=NAME, seed=args.seed, **keras_support.versions()
    )
    if not hasattr(HANDLER, "save_checkpoint_if_preempted"):
        events.write("unsupported", reason="the handler has no save_checkpoint_if_preempted")
        sys.exit(workload.UNSUPPORTED)
    data = workload.load_data(args.data)
    with multi_worker.reporting_lost_peers(events, role):
        run(args, role, events, data)


def run(args, role, events, data):
    devices = keras_support.logical_devices(args.devices)
    if role.cluster:
        communication = tf.distribute.experimental.CommunicationImplementation
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=communication[args.backend.upper()]
            )
        )
    else:
        strategy = tf.distribute.MirroredStrategy(devices)
    replicas = strategy.num_replicas_in_sync
    multi_worker.report_joined(events, role, args.backend if role.cluster else "none", replicas)
    global_batch = args.batch_size * replicas
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_cnn_model(args)
        optimizer = keras_support.build_optimizer(args, model)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    train_step = make_train_step(strategy, model, optimizer, accuracy, global_batch)
    epoch, step_in_epoch = custom_loop.progress()
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=optimizer, epoch=epoch, step_in_epoch=step_in_epoch
    )
    save = restore(args, role, events, checkpoint)
    before_step = watch_for_preemption(args, events, strategy, checkpoint, save)
    reporter = custom_loop.EventReporter(events, args, strategy, model, optimizer)
    reporter.weights("initial")

    first = custom_loop.position(args, epoch, step_in_epoch)
    train = keras_support.training_dataset(data, args, global_batch, *first)
    iterator = iter(strategy.experimental_distribute_dataset(train))
    while epoch.numpy() < args.epochs:
        accuracy.reset_state()
        total_loss, steps_before = 0.0, reporter.steps
        for step in range(1 + int(step_in_epoch.numpy()), 1 + args.steps_per_epoch):
            before_step(step - 1)
            batch = next(iterator)
            loss, own = train_step(batch)
            total_loss += loss
            reporter.step(own, batch)
        steps = reporter.steps - steps_before
        metrics = {"loss": float(total_loss) / steps, "accuracy": float(accuracy.result())}
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        print("Epoch %d of %d: %s" % (epoch.numpy(), args.epochs, metrics), flush=True)
        reporter.epoch(int(epoch.numpy()), steps, metrics)
        save()

    reporter.weights("final")
    if role.cluster:
        multi_worker.wait_for_all(strategy)
    events.write("finished", global_step=reporter.global_step, steps=reporter.steps)


def watch_for_preemption(args, events, strategy, checkpoint, save):
    """Return a function to call before each step with the number of steps done in the epoch.

    After a preemption notice it makes all workers save and exit with code 42. The notice is a
    SIGTERM to any worker. The workers agree on the step before which they save. See
    https://www.tensorflow.org/guide/migrate/fault_tolerance.
    """
    if not args.model_dir:
        raise workload.BadInput("--model-dir: name a directory to save to")

    def save_and_report():
        save()
        events.write("preempted", global_step=int(checkpoint.optimizer.iterations.numpy()))

    # The handler reads the chief's checkpoint on every worker, so all workers must restore the same
    # count of calls.
    chiefs = os.path.join(args.model_dir, "ckpt")
    handler = HANDLER(
        strategy.cluster_resolver,
        tf.train.CheckpointManager(checkpoint, chiefs, max_to_keep=1),
        termination_config=tf.distribute.experimental.TerminationConfig(save_fn=save_and_report),
    )

    def before_step(done):
        checkpoint.step_in_epoch.assign(done)
        handler.save_checkpoint_if_preempted()

    return before_step


def make_train_step(strategy, model, optimizer, accuracy, global_batch):
    """Return a function that runs one step on all replicas.

    It returns the loss over the global batch, and for each local replica the `losses_of` its own
    share of the batch.
    """
    # Not reduced here: a replica does not know how many examples the other replicas have.
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
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

    @tf.function
    def train_step(batch):
        losses, own = strategy.run(replica_step, args=tuple(batch[:2]))
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        return loss, strategy.experimental_local_results(own)

    return train_step


def restore(args, role, events, checkpoint):
    """Restore the last checkpoint, if there is one, and return a function that saves the next."""
    optimizer = checkpoint.optimizer
    keras_checkpoints.model_directory(args.model_dir)
    keras_checkpoints.restore_and_report(args, checkpoint, events, checkpoint.model, optimizer)
    own_directory = multi_worker.write_path(os.path.join(args.model_dir, "ckpt"), role)
    manager = tf.train.CheckpointManager(checkpoint, own_directory, max_to_keep=1)

    def save():
        """Save on every worker, because reading some variables is a collective of all workers."""
        global_step = int(optimizer.iterations.numpy())
        keras_checkpoints.save_and_report(manager, events, global_step)
        multi_worker.remove_temporary(own_directory, role)

    return save


if __name__ == "__main__":
    workload.run(main, NAME)
