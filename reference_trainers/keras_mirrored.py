"""One process, several devices: MirroredStrategy with Keras Model.fit.

Implements https://www.tensorflow.org/tutorials/distribute/keras. The model is built in the
strategy's scope. The global batch is the batch of a replica times the number of replicas. Callbacks
write event files for TensorBoard, save a checkpoint after each epoch, and print the learning rate
of each epoch. Beyond the document: seeds, the optimizer's state in every checkpoint,
BackupAndRestore.
"""

import importlib.util
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow as tf

from reference_trainers import (
    keras_checkpoints,
    keras_events,
    keras_support,
    workload,
)

NAME = "keras_mirrored"


def main():
    run(*keras_support.begin(NAME, __doc__))


def decay(epoch, base):
    """Return the learning rate of an epoch (from 0): 1e-3, 1e-4 and 1e-5 for a base of 1e-3."""
    if epoch < 3:
        return base
    if epoch < 7:
        return base * 0.1
    return base * 0.01


class PrintLR(tf.keras.callbacks.Callback):
    """Print the learning rate at the end of each epoch."""

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002 (Keras' signature)
        rate = keras_support.learning_rate(self.model)
        print("\nLearning rate for epoch %d is %.9g" % (epoch + 1, rate), flush=True)


def run(args, events, data):
    strategy = tf.distribute.MirroredStrategy(keras_support.logical_devices(args.devices))
    replicas = strategy.num_replicas_in_sync
    print("Number of devices: %d" % replicas, flush=True)
    events.write("joined", cluster={}, workers=1, chief=True, backend="none", replicas=replicas)
    global_batch = args.batch_size * replicas
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_and_compile_cnn_model(args)

    keras_checkpoints.begin_with(args, events, model, model.optimizer)
    start = keras_checkpoints.Position()
    callbacks = [
        tf.keras.callbacks.LearningRateScheduler(lambda epoch: decay(epoch, args.learning_rate)),
        PrintLR(),
    ]
    if args.model_dir:
        start = keras_checkpoints.resume_from_epochs(args, model, events)
        if importlib.util.find_spec("tensorboard"):
            callbacks.append(tf.keras.callbacks.TensorBoard(os.path.join(args.model_dir, "logs")))
        else:  # TensorFlow up to 2.20 installs it; tf.summary.scalar raises without it
            print("TensorBoard is not installed: no event files", flush=True)
        callbacks += [
            keras_checkpoints.EpochCheckpoints(args.model_dir, events),
            keras_checkpoints.backup_callback(args, events, start),
        ]
    reporter = None
    if events.enabled:
        probe = keras_events.BatchProbe(model, args.audit_input)
        reporter = keras_events.EventsCallback(events, args, probe)
        callbacks.append(reporter)

    test, test_steps = keras_support.test_dataset(data, global_batch)
    model.fit(
        keras_support.training_dataset(data, args, global_batch, start.epoch, start.step),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=callbacks,
        validation_data=test if args.evaluate else None,
        validation_steps=test_steps if args.evaluate else None,
        verbose=2,
    )

    global_step = keras_support.iterations(model)
    if reporter:
        reporter.weights("final")
    if args.evaluate:
        metrics = model.evaluate(test, steps=test_steps, return_dict=True, verbose=0)
        events.write("evaluated", global_step=global_step, metrics=metrics)
    if args.export:
        path = keras_checkpoints.save_model(model, args.export)
        digest = keras_checkpoints.exported_digest(path) if events.enabled else ""
        events.write("exported", path=path, kept=True, digest=digest)
    events.write("finished", global_step=global_step, steps=reporter.steps if reporter else 0)


if __name__ == "__main__":
    workload.run(main, NAME)
