"""Run BackupAndRestore on a directory in which another CheckpointManager saves as well.

For mwms/backup-dir-exclusive. The first run saves both each epoch and is interrupted in its last
epoch. The second run on the same --model-dir reports where it resumed. `collided` lists the
remaining files and the error, if any. --inside puts the other checkpoints into the subdirectory
that Keras 2 really uses (backup_dir/chief). --apart is the control, with a separate directory for
them.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers.support import keras_support, workload
from reference_trainers.support.events import EventWriter

NAME = "shared_backup_dir"
EPOCHS, STEPS = 3, 4


class Interrupted(Exception):
    """Simulates the loss of a machine."""


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--model-dir", required=True, metavar="DIR")
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    events = EventWriter()
    backup = os.path.join(args.model_dir, "backup")
    other = os.path.join(backup, "chief") if args.inside else backup
    other = os.path.join(args.model_dir, "other") if args.apart else other
    first_run = not os.path.exists(other)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(other=tf.Variable(tf.ones(3))), other, max_to_keep=1
    )
    model = tf.keras.Sequential([tf.keras.Input(shape=(4,)), tf.keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.1))
    model.optimizer.build(model.trainable_variables)

    def save_other(epoch, _logs):
        manager.save()
        if first_run and epoch == EPOCHS - 2:
            raise Interrupted

    def report_restored(_logs):
        state = keras_support.state(model)
        where = {"path": backup, "global_step": state["iterations"]}
        events.write("restored", seconds=None, **where, **state)

    callbacks = [
        tf.keras.callbacks.BackupAndRestore(backup),
        tf.keras.callbacks.LambdaCallback(on_train_begin=report_restored, on_epoch_end=save_other),
    ]
    x, error = np.ones((STEPS, 4), np.float32), ""
    try:
        model.fit(x, x[:, :1], batch_size=1, epochs=EPOCHS, callbacks=callbacks, verbose=2)
    except Interrupted:
        error = "interrupted"
    except Exception as failure:  # noqa: BLE001 (a collision's effect is the question)
        error = "%s: %s" % (type(failure).__name__, failure)
    files = sorted(
        os.path.relpath(os.path.join(where, name), args.model_dir)
        for where, _, names in os.walk(args.model_dir)
        for name in names
    )
    events.write("collided", files=files, error=error)


if __name__ == "__main__":
    workload.run(main, NAME)
