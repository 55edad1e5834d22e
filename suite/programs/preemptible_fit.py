"""Train with Keras Model.fit, report it, and save and exit when a worker gets SIGTERM.

For mwms/backup-preemption, with save_before_preemption: BackupAndRestore saves when a worker gets
SIGTERM, and no longer at the end of each epoch. All workers save at the same step and end with exit
code 42. When restarted, they resume at the next step. Keras supports that on Google's platforms
only. Elsewhere Keras does not report it, and this program ends with exit code 77.

The steps are those of the reference trainers, under MultiWorkerMirroredStrategy or, for one
process, under MirroredStrategy.
"""

import contextlib
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import (
    keras_checkpoints,
    keras_events,
    keras_support,
    multi_worker,
    roles,
    workload,
)
from reference_trainers.support.events import EventWriter

NAME = "preemptible_fit"
FLAGS = (
    "save-every",
    "evaluate",
    "order",
    "optimizer",
    "learning-rate",
    "model",
    "precision",
    "export",
    "backend",
    "devices",
    "preemption",
)


def main():
    parser = workload.parser(NAME, __doc__, FLAGS)
    parser.set_defaults(audit_input=False, dump_weights=False)
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    events.write(
        "started", pid=os.getpid(), trainer=NAME, seed=args.seed, **keras_support.versions()
    )
    data = workload.load_data(args.data)
    with multi_worker.reporting_lost_peers(events, role):
        run(args, role, events, data)


def run(args, role, events, data):
    strategy = make_strategy(args, role)
    replicas = strategy.num_replicas_in_sync
    multi_worker.report_joined(events, role, args.backend if role.cluster else "none", replicas)
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_and_compile_cnn_model(args)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    start, callbacks = keras_checkpoints.Position(), []
    if args.preemption and not args.model_dir:
        raise workload.BadInput("--preemption: there is no --model-dir to save to")
    if args.model_dir:
        start = keras_checkpoints.resume(args, model, checkpoint, events)
        callbacks.append(keras_checkpoints.backup_callback(args, events, start))
    if args.preemption:
        callbacks.append(NeedsNotice(events))
    reporter = None
    if events.enabled:
        probe = keras_events.BatchProbe(model, args.audit_input)
        reporter = keras_events.EventsCallback(events, args, probe)
        callbacks.append(reporter)

    global_batch = args.batch_size * replicas
    test, test_steps = keras_support.test_dataset(data, global_batch)
    train = keras_support.training_dataset(data, args, global_batch, start.epoch, start.step)
    with reporting_preemption(events, model):
        model.fit(
            train,
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
        save_checkpoint(args, role, checkpoint, events, global_step)
    if args.export:
        export(args, role, model, events)
    if role.cluster:
        multi_worker.wait_for_all(strategy)
    events.write("finished", global_step=global_step, steps=reporter.steps if reporter else 0)


def make_strategy(args, role):
    devices = keras_support.logical_devices(args.devices)
    if not role.cluster:
        return tf.distribute.MirroredStrategy(devices)
    communication = tf.distribute.experimental.CommunicationImplementation[args.backend.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


class NeedsNotice(tf.keras.callbacks.Callback):
    """End the task with exit code 77 if the Backup placed before it ignores SIGTERM.

    Keras does not report that, and training would continue to its end.
    """

    def __init__(self, events):
        super().__init__()
        self._events, self._before = events, signal.getsignal(signal.SIGTERM)

    def on_train_begin(self, logs=None):  # noqa: ARG002 (Keras' signature)
        if signal.getsignal(signal.SIGTERM) == self._before:
            multi_worker.leave_unsupported(
                self._events,
                "BackupAndRestore does not listen for SIGTERM here: save_before_preemption of "
                "Keras 2 and tf_keras is for Google's platforms only, Keras 3 does not have it",
            )


@contextlib.contextmanager
def reporting_preemption(events, model):
    """Write `preempted` when BackupAndRestore exits from `fit`, after its save."""
    try:
        yield
    except SystemExit as leaving:
        if leaving.code == workload.PREEMPTED:
            events.write("preempted", global_step=keras_support.iterations(model))
        raise


def save_checkpoint(args, role, checkpoint, events, global_step):
    directory = multi_worker.write_path(os.path.join(args.model_dir, "ckpt"), role)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
    keras_checkpoints.save_and_report(manager, events, global_step)
    multi_worker.remove_temporary(directory, role)


def export(args, role, model, events):
    directory = multi_worker.write_path(args.export, role)
    path = keras_checkpoints.save_model(model, directory)
    digest = keras_checkpoints.exported_state(path)[0] if events.enabled else ""
    multi_worker.remove_temporary(directory, role)
    events.write("exported", path=path, kept=role.chief, digest=digest)


if __name__ == "__main__":
    workload.run(main, NAME)
