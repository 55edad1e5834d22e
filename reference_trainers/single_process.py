"""One process, no strategy: the baseline for every distributed approach.

Implements the first part of https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
("Model training on a single worker"): the document's CNN, data set and hyperparameters. Beyond the
document: seeds, BackupAndRestore, a checkpoint that includes the optimizer, evaluation, export.
"""

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

NAME = "single_process"


def main():
    args, events, data = keras_support.begin(NAME, __doc__)
    tf.keras.utils.set_random_seed(args.seed)
    events.write("joined", cluster={}, workers=1, chief=True, backend="none", replicas=1)

    model = keras_support.build_and_compile_cnn_model(args)
    if args.initial_weights:
        keras_support.copy_weights(args.initial_weights, model)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    keras_checkpoints.begin_with(args, events, model, model.optimizer)
    start, callbacks = keras_checkpoints.Position(), []
    if args.model_dir:
        start = keras_checkpoints.resume(args, model, checkpoint, events)
        callbacks.append(keras_checkpoints.backup_callback(args, events, start))
    reporter = None
    if events.enabled:
        probe = keras_events.BatchProbe(model, args.audit_input)
        reporter = keras_events.EventsCallback(events, args, probe)
        callbacks.append(reporter)

    test, test_steps = keras_support.test_dataset(data, args.batch_size)
    model.fit(
        keras_support.training_dataset(data, args, args.batch_size, start.epoch, start.step),
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
    if args.model_dir:
        manager = tf.train.CheckpointManager(
            checkpoint, os.path.join(args.model_dir, "ckpt"), max_to_keep=1
        )
        keras_checkpoints.save_and_report(manager, events, global_step)
    if args.export:
        path = keras_checkpoints.save_model(model, args.export)
        digest = keras_checkpoints.exported_digest(path) if events.enabled else ""
        events.write("exported", path=path, kept=True, digest=digest)
    events.write("finished", global_step=global_step, steps=reporter.steps if reporter else 0)


if __name__ == "__main__":
    workload.run(main, NAME)
