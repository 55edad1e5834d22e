"""One process, several devices, in a custom training loop: MirroredStrategy with strategy.run.

Implements https://www.tensorflow.org/tutorials/distribute/custom_training. A step is one
tf.function. A replica divides its loss by the global batch size, and its regularization loss by the
number of replicas, so that the sum of the gradients is the gradient of the mean. It differs from
the document in two ways. It saves after every epoch; the document's program saves after every other
epoch and so restores an older epoch than its last. An interrupted run resumes from the last save.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow as tf

from reference_trainers import (
    custom_loop,
    keras_checkpoints,
    keras_support,
    workload,
)

NAME = "custom_loop_mirrored"


def main():
    run(*keras_support.begin(NAME, __doc__))


def run(args, events, data):
    strategy = tf.distribute.MirroredStrategy(keras_support.logical_devices(args.devices))
    replicas = strategy.num_replicas_in_sync
    print("Number of devices: %d" % replicas, flush=True)
    events.write("joined", cluster={}, workers=1, chief=True, backend="none", replicas=replicas)
    global_batch = args.batch_size * replicas
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_cnn_model(args)
        optimizer = keras_support.build_optimizer(args, model)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    train_step = custom_loop.make_train_step(
        strategy, model, optimizer, accuracy, global_batch, args.jit
    )
    test, test_steps = keras_support.test_dataset(data, global_batch)
    test_batches = iter(strategy.experimental_distribute_dataset(test.repeat()))
    evaluate = custom_loop.make_evaluation(strategy, model, test_batches, test_steps)

    keras_checkpoints.begin_with(args, events, model, optimizer)
    epoch, step_in_epoch = custom_loop.progress()
    checkpoint = tf.train.Checkpoint(
        optimizer=optimizer, model=model, epoch=epoch, step_in_epoch=step_in_epoch
    )
    save = restore(args, events, checkpoint) if args.model_dir else lambda: None
    before_step = custom_loop.watch_for_preemption(args, events, strategy, checkpoint, save)
    reporter = custom_loop.EventReporter(events, args, strategy, model, optimizer)
    reporter.weights("initial")

    first = custom_loop.position(args, epoch, step_in_epoch)
    train = keras_support.training_dataset(data, args, global_batch, *first)
    train_batches = iter(strategy.experimental_distribute_dataset(train))
    while epoch.numpy() < args.epochs:
        accuracy.reset_state()
        total_loss, steps_before = 0.0, reporter.steps
        for step in range(1 + int(step_in_epoch.numpy()), 1 + args.steps_per_epoch):
            before_step(step - 1)
            batch = next(train_batches)
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
        print("Epoch %d, %s" % (epoch.numpy(), metrics), flush=True)
        reporter.epoch(int(epoch.numpy()), steps, metrics)
        save()

    reporter.weights("final")
    if args.evaluate:
        events.write("evaluated", global_step=reporter.global_step, metrics=evaluate())
    events.write("finished", global_step=reporter.global_step, steps=reporter.steps)


def restore(args, events, checkpoint):
    """Restore the last checkpoint, if there is one, and return a function that saves the next."""
    model, optimizer = checkpoint.model, checkpoint.optimizer
    keras_checkpoints.model_directory(args.model_dir)
    keras_checkpoints.restore_and_report(args, checkpoint, events, model, optimizer)
    manager = tf.train.CheckpointManager(
        checkpoint, os.path.join(args.model_dir, "ckpt"), max_to_keep=1
    )

    def save():
        global_step = int(optimizer.iterations.numpy())
        keras_checkpoints.save_and_report(manager, events, global_step)

    return save


if __name__ == "__main__":
    workload.run(main, NAME)
