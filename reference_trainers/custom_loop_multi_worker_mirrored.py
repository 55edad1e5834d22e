"""N synchronous workers in a custom training loop: MultiWorkerMirroredStrategy with strategy.run.

Implements https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl. A step is one
tf.function. A replica divides its loss by the global batch size, so that the sum of the gradients
is the gradient of the mean. Epoch and step are part of the checkpoint. Every worker saves it, the
chief to the real path and the others to a temporary path. It differs from the document in three
ways, without which the document's program loses work: the checkpoint includes the optimizer, the
epoch is counted before the save, and a restarted run finds the checkpoint. Without TF_CONFIG the
cluster has one worker.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow as tf

from reference_trainers import (
    BY_NAME,
    custom_loop,
    keras_checkpoints,
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
    with multi_worker.reporting_lost_peers(events, role):
        run(args, role, events, data)


def run(args, role, events, data):
    keras_support.logical_devices(args.devices)
    # Starts the server and waits until every worker has joined. No TensorFlow op may run before.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[
                args.backend.upper()
            ]
        )
    )
    multi_worker.need_replicas(events, role, strategy, args.devices)
    replicas = strategy.num_replicas_in_sync
    multi_worker.report_joined(events, role, args.backend, replicas)
    global_batch = args.batch_size * replicas
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_cnn_model(args)
        optimizer = keras_support.build_optimizer(args, model)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    train_step = custom_loop.make_train_step(
        strategy, model, optimizer, accuracy, global_batch, args.jit
    )
    test, test_steps = keras_support.test_dataset(data, global_batch)
    test_batches = iter(distributed(strategy, test.repeat(), args))
    evaluate = custom_loop.make_evaluation(strategy, model, test_batches, test_steps)

    keras_checkpoints.begin_with(args, events, model, optimizer)
    epoch, step_in_epoch = custom_loop.progress()
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=optimizer, epoch=epoch, step_in_epoch=step_in_epoch
    )
    save = restore(args, role, events, checkpoint) if args.model_dir else lambda: None
    before_step = custom_loop.watch_for_preemption(args, events, strategy, checkpoint, save)
    reporter = custom_loop.EventReporter(events, args, strategy, model, optimizer)
    reporter.weights("initial")

    first = custom_loop.position(args, epoch, step_in_epoch)
    train = keras_support.training_dataset(data, args, global_batch, *first)
    iterator = iter(distributed(strategy, train, args))
    while epoch.numpy() < args.epochs:
        accuracy.reset_state()
        total_loss, steps_before = 0.0, reporter.steps
        for step in range(1 + int(step_in_epoch.numpy()), 1 + args.steps_per_epoch):
            before_step(step - 1)
            batch = next(iterator)
            loss, own = train_step(batch)
            total_loss += loss
            reporter.step(own, batch)
            if custom_loop.is_due(args, step):
                step_in_epoch.assign(step)
                save()
        steps = reporter.steps - steps_before
        metrics = {"loss": float(total_loss) / steps, "accuracy": float(accuracy.result())}
        if args.evaluate:
            metrics.update({"val_" + name: value for name, value in evaluate().items()})
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        print("Epoch %d of %d: %s" % (epoch.numpy(), args.epochs, metrics), flush=True)
        reporter.epoch(int(epoch.numpy()), steps, metrics)
        save()

    reporter.weights("final")
    if args.evaluate:
        events.write("evaluated", global_step=reporter.global_step, metrics=evaluate())
    multi_worker.wait_for_all(strategy)
    events.write("finished", global_step=reporter.global_step, steps=reporter.steps)


def distributed(strategy, dataset, args):
    """Return the data set of global batches, sharded over the workers."""
    return strategy.experimental_distribute_dataset(multi_worker.sharded(dataset, args.autoshard))


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
