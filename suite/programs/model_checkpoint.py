"""Train with ModelCheckpoint only, which saves every epoch but does not resume a second run.

For mwms/model-checkpoint-no-resume. Start it twice with the same --model-dir: the first `weights`
event of the second run must be that of a new model, although a `checkpoint_saved` event precedes
it.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import keras_events, keras_support, roles, workload
from reference_trainers.support.events import EventWriter

NAME = "model_checkpoint"


def main():
    flags = ("audit-input", "order", "optimizer", "learning-rate", "dump-weights")
    args = workload.parser(NAME, __doc__, flags, epochs=1, steps_per_epoch=5).parse_args()
    if not args.model_dir:
        raise workload.BadInput("--model-dir: name a directory")
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    data = workload.load_data(args.data)
    alone = len(role.workers) == 1
    strategy = (
        tf.distribute.get_strategy() if alone else tf.distribute.MultiWorkerMirroredStrategy()
    )
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = keras_support.build_and_compile_cnn_model(args)

    # Keras 3 accepts only files of its own format. Keras 2 writes a TensorFlow checkpoint.
    suffix = ".weights.h5" if keras_support.is_keras_3() else ""
    path = os.path.join(args.model_dir, "model-{epoch}" + suffix)
    reporter = keras_events.EventsCallback(
        events, args, keras_events.BatchProbe(model, args.audit_input)
    )
    batch = args.batch_size * strategy.num_replicas_in_sync
    model.fit(
        keras_support.training_dataset(data, args, batch),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=[tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True), reporter],
        verbose=2,
    )
    step = int(model.optimizer.iterations.numpy())
    if role.chief:
        where = {"path": path.format(epoch=args.epochs), "global_step": step}
        events.write("checkpoint_saved", seconds=None, **where)
    events.write("finished", global_step=step, steps=reporter.steps)


if __name__ == "__main__":
    workload.run(main, NAME)
