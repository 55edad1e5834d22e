"""Where a Keras trainer goes on: its backup, its last checkpoint, and whether they fit the model.

Layout of a model directory: backup/ belongs to BackupAndRestore alone, ckpt/ to a
CheckpointManager, training_checkpoints/ has the weights after each epoch. TensorFlow restores a
checkpoint of another model as far as names match and is silent about the rest, so the shapes are
compared before anything is restored or overwritten.
"""

import glob
import json
import os
import shutil
from typing import NamedTuple

import tensorflow as tf

from reference_trainers import keras_support
from reference_trainers.workload import BadInput, timed

EPOCHS_DIRECTORY = "training_checkpoints"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# What the names of weights contain, where nothing else's does: of a Keras model's layers; of an
# optimizer of Keras, or of one's own, that keeps the variables it trains (the shorter path counts).
OF_WEIGHTS = ("layer_with_weights-", "optimizer/_trainable_variables/", "optimizer/model_variables")


class Position(NamedTuple):
    """Where training begins: the backup that `fit` will restore ("" for none), epoch and step."""

    backup: str = ""
    epoch: int = 0  # epochs that are complete
    step: int = 0  # steps that are done in the epoch after them


def model_directory(path):
    """Make the directory; BadInput when that cannot be."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise BadInput("--model-dir: %s cannot be made: %s" % (path, error.strerror)) from error


def backup_position(directory, args, model):
    """Find the Position from which BackupAndRestore will go on.

    BackupAndRestore tells nobody where it resumes, and the data must begin there too. BadInput
    when the backup is damaged or of another model.
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
        except (OSError, RuntimeError):  # h5py's for a file that a full disk cut; Keras misses it
            if not os.path.exists(previous):
                raise
            # It was being written when the process was killed; Keras takes the one before as well,
            # and would say so by nothing but a name that `load_weights` refuses.
            model.load_weights(shutil.copy(previous, path))
            return _keras_3_epoch(path, ".bkp")
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise BadInput("--model-dir: %s cannot be restored: %s" % (path, error)) from error


def _keras_3_epoch(path, ending):
    metadata = os.path.join(os.path.dirname(path), "training_metadata.json")
    if ending:
        shutil.copy(metadata + ending, metadata)
    with open(metadata) as file:
        # Keras 3 begins that epoch again, also when the backup was made within it.
        return Position(path, int(json.load(file)["epoch"]), 0)


def checked(path, model, flag="--model-dir"):
    """A reader of the checkpoint; BadInput when it is damaged or of another model."""
    try:
        reader = tf.train.load_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        for name in shapes:
            reader.get_tensor(name)  # a file that was cut short is found here, not in the middle
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise BadInput("%s: the checkpoint %s is damaged: %s" % (flag, path, error)) from error
    stored = sorted(
        tuple(shape) for name, shape in shapes.items() if any(part in name for part in OF_WEIGHTS)
    )
    own = sorted(whole_shapes(model))
    if stored != own:
        raise BadInput(
            "%s: the checkpoint %s is of another model: it has weights of shapes %s, this model %s"
            % (flag, path, stored, own)
        )
    return reader


def whole_shapes(model):
    """Shapes of the model's weights as a checkpoint has them: one for all shards of a variable."""
    shapes = {}
    for variable in model.trainable_variables:
        container = getattr(variable, "_sharded_container", None)
        whole = container() if container else variable
        shapes[id(whole)] = tuple(whole.shape)
    return shapes.values()


def restore_latest(checkpoint, directory, model):
    """Restore the last checkpoint of a CheckpointManager's directory.

    Its path, "" for none, and the seconds that it took.
    """
    path = last_written(directory)
    return (path, restore_whole(checkpoint, path, model)) if path else ("", 0.0)


def last_written(directory):
    """Path of the last checkpoint of a CheckpointManager that is really there, "" for none.

    Its list may name one that is not: DTensor writes a checkpoint after the list that has it, and
    for one that is killed in between `tf.train.latest_checkpoint` finds nothing at all.
    """
    listed = tf.train.get_checkpoint_state(directory)
    paths = listed.all_model_checkpoint_paths if listed else ()
    return next((path for path in reversed(paths) if os.path.exists(path + ".index")), "")


def restore_whole(checkpoint, path, model, flag="--model-dir"):
    """Restore all that `checkpoint` has; gives the seconds that it took.

    BadInput when the file lacks some or is damaged: to look for that is not in the seconds.
    """
    checked(path, model, flag)
    try:
        status, seconds = timed(checkpoint.restore, path)
        status.assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:
        raise BadInput(
            "%s: the checkpoint %s is of another model: %s" % (flag, path, error)
        ) from error
    return seconds


def begin_with(args, events, model, optimizer):
    """Restore model and optimizer from --restore, if it is given, and write `restored`."""
    if args.restore:
        both = tf.train.Checkpoint(model=model, optimizer=optimizer)
        seconds = restore_whole(both, args.restore, model, "--restore")
        report_restored(events, args.restore, seconds, model, optimizer)


def restore_and_report(args, checkpoint, events, model, optimizer=None, counter=None):
    """Restore the last checkpoint in --model-dir, if there is one, and write `restored`.

    `optimizer`: of a model that is not compiled. `counter`: of steps, if not the optimizer's.
    """
    path, seconds = restore_latest(checkpoint, os.path.join(args.model_dir, "ckpt"), model)
    if path:
        report_restored(events, path, seconds, model, optimizer, counter)


def report_restored(events, path, seconds, model, optimizer=None, counter=None, **told):
    """Write `restored`, with the state as it is now; see `restore_and_tell`."""
    if events.enabled:
        state = keras_support.state(model, optimizer)
        step = state["iterations"] if counter is None else int(counter.numpy())
        events.write("restored", path=path, global_step=step, seconds=seconds, **told, **state)


def save_and_report(manager, events, global_step):
    """Have a CheckpointManager save, and write `checkpoint_saved`."""
    path, seconds = timed(manager.save)
    events.write("checkpoint_saved", path=path, global_step=global_step, seconds=seconds)


class EpochCheckpoints(tf.keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint of the weights after each epoch, `ckpt_{epoch}`; tells of each.

    A model that is compiled has its optimizer's state in the same file.
    """

    def __init__(self, model_dir, events):
        # Keras 3 refuses any other ending.
        name = "ckpt_{epoch}" + (".weights.h5" if keras_support.is_keras_3() else "")
        super().__init__(os.path.join(model_dir, EPOCHS_DIRECTORY, name), save_weights_only=True)
        self._events = events

    def on_epoch_end(self, epoch, logs=None):
        _, seconds = timed(super().on_epoch_end, epoch, logs)
        global_step = keras_support.iterations(self.model)
        path = self.filepath.format(epoch=epoch + 1)
        self._events.write("checkpoint_saved", path=path, global_step=global_step, seconds=seconds)


def resume_from_epochs(args, model, events):
    """`resume` for who saves by EpochCheckpoints: the last one is loaded into the model."""
    model_directory(args.model_dir)
    start = backup_position(os.path.join(args.model_dir, "backup"), args, model)
    path = "" if start.backup else _latest_of_epochs(os.path.join(args.model_dir, EPOCHS_DIRECTORY))
    if path:
        if not keras_support.is_keras_3():
            checked(path, model)
        try:
            _, seconds = timed(model.load_weights, path)
        except (OSError, ValueError, KeyError) as error:
            raise BadInput("--model-dir: %s cannot be restored: %s" % (path, error)) from error
        report_restored(events, path, seconds, model)
    return start


def _latest_of_epochs(directory):
    if not keras_support.is_keras_3():
        return tf.train.latest_checkpoint(directory)
    found = glob.glob(os.path.join(directory, "ckpt_*.weights.h5"))
    # By the number and not by the clock: two epochs may end within its resolution.
    return max(found, key=lambda path: int(path.rsplit("_", 1)[1].split(".")[0]), default="")


def resume(args, model, checkpoint, events):
    """Find the Position to go on from, and restore what `fit` will not restore by itself.

    A backup means that the last run was interrupted. Without one, the checkpoint of a finished
    run is restored and training goes on from its weights, as the document shows.
    """
    model_directory(args.model_dir)
    start = backup_position(os.path.join(args.model_dir, "backup"), args, model)
    if not start.backup:
        restore_and_report(args, checkpoint, events, model)
    return start


class Backup(tf.keras.callbacks.BackupAndRestore):
    """BackupAndRestore that writes `restored`, and knows how many `seconds` its last turn took."""

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
    """Backup as the flags ask for it: once per epoch, or every --save-every steps.

    With --preemption on a notice as well, and no longer once per epoch. `start` is the Position
    that `resume` has found.

    Keras 3 writes over the backup in its place, so that a kill meanwhile would leave none: it has
    to keep the one before as well, which it does not by itself. Keras 2 writes another file.
    """
    how, often = {}, args.save_every or "epoch"
    if keras_support.is_keras_3():
        how["double_checkpoint"] = True
    elif args.preemption:
        # With "epoch" Keras asks for no call after a batch, which is when it looks for a notice.
        how["save_before_preemption"], often = True, args.save_every or False
    return Backup(os.path.join(args.model_dir, "backup"), events, start, save_freq=often, **how)


def save_model(model, path):
    """Write the whole model the flavour's way; the path really written.

    A SavedModel in Keras 2 and tf_keras. Keras 3 loads only its own format as a model again.
    """
    if keras_support.is_keras_3():
        os.makedirs(path, exist_ok=True)
        path = os.path.join(path, "model.keras")
        model.save(path)
    else:
        model.save(path, save_format="tf")
    return path


def exported_digest(path):
    """Digest of the weights that are really on the disk: the saved model is loaded again."""
    loaded = tf.keras.models.load_model(path, compile=False)
    return keras_support.workload.digest(keras_support.weights(loaded))
