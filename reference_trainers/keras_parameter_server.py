"""Asynchronous workers and parameter servers: ParameterServerStrategy with Keras Model.fit.

Implements the part on Model.fit of
https://www.tensorflow.org/tutorials/distribute/parameter_server_training: the chief runs fit, and
idle workers run its steps. BackupAndRestore resumes a run from the start of the interrupted epoch.
Beyond the document, each worker has its own shuffle seed, and evaluation is exact: each test
example counts once.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow as tf

from reference_trainers import (
    keras_checkpoints,
    keras_events,
    keras_support,
    multi_worker,
    parameter_servers,
    workload,
)

NAME = "keras_parameter_server"
TEST_BATCH = 256
STEPS_PER_EXECUTION = 10  # at most; the document's value


def main():
    parameter_servers.main(NAME, __doc__, run)


def run(args, role, events, data):
    args.audit_input, args.save_every = False, 0  # both would need a callback for each batch
    # Connects to all servers and waits until they are up.
    strategy = parameter_servers.connect(role, args)
    replicas = strategy.num_replicas_in_sync
    multi_worker.report_joined(events, role, "none", replicas)
    tf.keras.utils.set_random_seed(args.seed)
    # Otherwise each worker evaluates the test set from its start, as far as it gets. One shard,
    # because TensorFlow would divide data in memory by file and finds too few.
    how = {} if keras_support.is_keras_3() else {"pss_evaluation_shards": 1}
    share = max(1, args.steps_per_epoch // len(role.workers))  # each worker's part of a short epoch
    how["steps_per_execution"] = min(STEPS_PER_EXECUTION, share)
    with strategy.scope():
        model = keras_support.build_and_compile_cnn_model(args, **how)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    parameter_servers.report_placed(events, model)

    start, callbacks, backup = keras_checkpoints.Position(), [], None
    if args.model_dir:
        start = keras_checkpoints.resume(args, model, checkpoint, events)
        backup = keras_checkpoints.backup_callback(args, events, start)
        callbacks.append(backup)
    reporter = None
    if events.enabled:
        reporter = keras_events.EpochsCallback(events, args, backup)
        callbacks.append(reporter)

    def dataset_fn(context):
        batch = context.get_per_replica_batch_size(args.batch_size * replicas)
        first_step = start.epoch * args.steps_per_epoch
        dataset = parameter_servers.worker_dataset(data, args, batch, first_step)
        return dataset.map(lambda images, labels, *_: (images, labels))

    test, _ = keras_support.test_dataset(data, TEST_BATCH)
    model.fit(
        tf.keras.utils.experimental.DatasetCreator(dataset_fn),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=callbacks,
        validation_data=test if args.evaluate else None,
        verbose=2,
    )

    global_step = keras_support.iterations(model)
    if reporter:
        reporter.weights("final")
    if args.evaluate:
        found = model.evaluate(test, return_dict=True, verbose=0)
        metrics = {name: float(value) for name, value in found.items()}
        events.write("evaluated", global_step=global_step, metrics=metrics)
    if args.model_dir:
        directory = os.path.join(args.model_dir, "ckpt")
        manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
        keras_checkpoints.save_and_report(manager, events, global_step)
    events.write("finished", global_step=global_step, steps=reporter.steps if reporter else 0)


if __name__ == "__main__":
    workload.run(main, NAME)
