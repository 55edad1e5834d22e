"""Checkpoints of the Keras trainers: backups, the last checkpoint, and whether they fit the model.

Layout of a model directory: only BackupAndRestore uses backup/, and a CheckpointManager uses ckpt/.
TensorFlow restores a checkpoint of another model as far as names match and does not report the
rest, so the shapes are compared before anything is restored or overwritten.
"""

import inspect
import json
import os
import shutil
from typing import NamedTuple

import tensorflow as tf

from reference_trainers.support import digests, keras_support
from reference_trainers.support.workload import BadInput, timed

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Substrings that only names of weights contain: those of a Keras model's layers, and those of an
# optimizer (of Keras or a custom one) that keeps the variables it trains (the shorter path counts).
OF_WEIGHTS = ("layer_with_weights-", "optimizer/_trainable_variables/")


class Position(NamedTuple):
    """The start of training: backup that `fit` restores ("" for none), epoch and step."""

    backup: str = ""
    epoch: int = 0  # complete epochs
    step: int = 0  # steps done in the next epoch


def model_directory(path):
    """Create the directory; raise BadInput if that fails."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise BadInput("--model-dir: %s cannot be made: %s" % (path, error.strerror)) from error


def backup_position(directory, args, model):
    """Return the Position at which BackupAndRestore will resume.

    BackupAndRestore does not expose that position, and the data must start there too. Raise
    BadInput if the backup is damaged or of another model.
    """
    if keras_support.is_keras_3():
        return _keras_3_position(directory, model)
    path = tf.train.latest_checkpoint(os.path.join(directory, "chief"))
    if not path:
        return Position()
    reader = checked(path, model)
    epoch = int(reader.get_tensor("ckpt_saved_epoch" + VALUE))
    within = args.save_every or args.preemption  # saves within an epoch
    step = int(reader.get_tensor("ckpt_saved_batch" + VALUE)) if within else -1
    if not within or step == args.steps_per_epoch - 1:
        return Position(path, epoch + 1, 0)
    return Position(path, epoch, step + 1)


def _keras_3_position(directory, model):
    path = os.path.join(directory, "latest.weights.h5")
    previous = path + ".bkp"
    if not os.path.exists(path):
        return Position()
    try:
        try:
            model.load_weights(path)
            return _keras_3_epoch(path, "")
        except (OSError, RuntimeError):  # h5py's errors for a truncated file; Keras misses it
            if not os.path.exists(previous):
                raise
            # The process was killed during the write. Keras falls back to the previous backup as
            # well, but only under a name that `load_weights` refuses.
            model.load_weights(shutil.copy(previous, path))
            return _keras_3_epoch(path, ".bkp")
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise BadInput("--model-dir: %s cannot be restored: %s" % (path, error)) from error


def _keras_3_epoch(path, ending):
    metadata = os.path.join(os.path.dirname(path), "training_metadata.json")
    if ending:
        shutil.copy(metadata + ending, metadata)
    with open(metadata) as file:
        # Keras 3 restarts that epoch, even if the backup was made within it.
        return Position(path, int(json.load(file)["epoch"]), 0)


def checked(path, model):
    """Return a reader of the checkpoint; raise BadInput if it is damaged or of another model."""
    try:
        reader = tf.train.load_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        for name in shapes:
            reader.get_tensor(name)  # detects a truncated file before anything is restored
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise BadInput("--model-dir: the checkpoint %s is damaged: %s" % (path, error)) from error
    stored = sorted(
        tuple(shape) for name, shape in shapes.items() if any(part in name for part in OF_WEIGHTS)
    )
    own = sorted(tuple(variable.shape) for variable in model.trainable_variables)
    if stored != own:
        raise BadInput(
            "--model-dir: the checkpoint %s is of another model: it has weights of shapes %s, "
            "this model %s" % (path, stored, own)
        )
    return reader


def restore_latest(checkpoint, directory, model):
    """Restore the last checkpoint in the directory of a CheckpointManager.

    Return its path ("" for none) and the seconds that the restore took.
    """
    path = tf.train.latest_checkpoint(directory)
    return (path, restore_whole(checkpoint, path, model)) if path else ("", 0.0)


def restore_whole(checkpoint, path, model):
    """Restore all objects of `checkpoint`, and return the seconds that the restore took.

    Raise BadInput if the file is damaged or lacks some of the objects. The seconds exclude the
    check for damage.
    """
    checked(path, model)
    try:
        status, seconds = timed(checkpoint.restore, path)
        status.assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:
        raise BadInput(
            "--model-dir: the checkpoint %s is of another model: %s" % (path, error)
        ) from error
    return seconds


def restore_and_report(args, checkpoint, events, model, optimizer=None):
    """Restore the last checkpoint in --model-dir, if there is one, and write `restored`.

    `optimizer`: for a model that is not compiled.
    """
    path, seconds = restore_latest(checkpoint, os.path.join(args.model_dir, "ckpt"), model)
    if path:
        report_restored(events, path, seconds, model, optimizer)


def report_restored(events, path, seconds, model, optimizer=None, **fields):
    """Write `restored` with the current state; see `restore_and_report` for the arguments."""
    if events.enabled:
        state = keras_support.state(model, optimizer)
        step = state["iterations"]
        events.write("restored", path=path, global_step=step, seconds=seconds, **fields, **state)


def save_and_report(manager, events, global_step):
    """Save with a CheckpointManager, and write `checkpoint_saved`."""
    path, seconds = timed(manager.save)
    events.write("checkpoint_saved", path=path, global_step=global_step, seconds=seconds)


def resume(args, model, checkpoint, events):
    """Return the Position to resume from, and restore the state that `fit` does not restore.

    A backup means that the last run was interrupted. Without one, the checkpoint of a finished run
    is restored and training continues from its weights, as the document shows.
    """
    model_directory(args.model_dir)
    start = backup_position(os.path.join(args.model_dir, "backup"), args, model)
    if not start.backup:
        restore_and_report(args, checkpoint, events, model)
    return start


class Backup(tf.keras.callbacks.BackupAndRestore):
    """BackupAndRestore that writes `restored`; `seconds` times its last restore or save."""

    def __init__(self, directory, events, start, **how):
        super().__init__(directory, **how)
        self._events, self._position = events, start
        self.seconds = 0.0

    def on_train_begin(self, logs=None):
        _, self.seconds = timed(super().on_train_begin, logs)
        path, epoch, _ = self._position
        if path:
            report_restored(self._events, path, self.seconds, self.model, epoch=epoch)

    def on_epoch_end(self, epoch, logs=None):
        _, self.seconds = timed(super().on_epoch_end, epoch, logs)


def backup_callback(args, events, start):
    """Return the Backup that the flags ask for: once per epoch, or every --save-every steps.

    With --preemption it saves on a notice as well, and no longer once per epoch. `start` is the
    Position that `resume` returned.

    Keras 3 overwrites the backup in place, so a kill during the write would leave none.
    `double_checkpoint`, off by default and new in Keras 3.7, makes it keep the previous backup as
    well. Keras 2 writes a new file.
    """
    how, often = {}, args.save_every or "epoch"
    if keras_support.is_keras_3():
        known = inspect.signature(tf.keras.callbacks.BackupAndRestore).parameters
        how = {"double_checkpoint": True} if "double_checkpoint" in known else {}
    elif args.preemption:
        # With "epoch" Keras requests no call after a batch, but it polls for a notice after
        # batches.
        how["save_before_preemption"], often = True, args.save_every or False
    return Backup(os.path.join(args.model_dir, "backup"), events, start, save_freq=often, **how)


def save_model(model, path):
    """Write the whole model in the flavor's format, and return the path that was written.

    Keras 2 and tf_keras write a SavedModel. Keras 3 can reload a model only from its own format.
    """
    if keras_support.is_keras_3():
        os.makedirs(path, exist_ok=True)
        path = os.path.join(path, "model.keras")
        model.save(path)
    else:
        model.save(path, save_format="tf")
    return path


def exported_module_digest(path, module, weights):
    """Return the digest of these variables of a tf.Module, as the SavedModel on disk has them.

    They are found by the names of their objects, because a loaded module lists no variables.
    """
    stored = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    leaves = list(module._flatten(with_path=True))
    keys = ["/".join(map(str, path)) for v in weights for path, leaf in leaves if leaf is v]
    return digests.digest([stored.get_tensor(key + VALUE) for key in keys])


def exported_state(path):
    """Load a saved model again; return the digest of its weights, and its statistics.

    The statistics are the values of the variables that training changes without a gradient.
    """
    loaded = tf.keras.models.load_model(path, compile=False)
    statistics = digests.values(keras_support.statistics(loaded))
    return digests.digest(keras_support.weights(loaded)), statistics
