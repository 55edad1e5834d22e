"""Load a model that a trainer has exported, in a separate process, and continue its training.

For mwms/saved-model-same, mirrored/saved-model and mirrored/latest-restores. Each `evaluated` must
equal the trainer's measurement. `how` names the source: the export without a strategy, the export
in a strategy's scope (--devices), or the weights of a checkpoint (--checkpoint). Training continues
from the export without a strategy, as the document shows, by default for 2 epochs x 20 steps
(`step` and `epoch` events). With --may-refuse, for versions/keras-file, a model that this Keras
cannot load is reported as unsupported.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import keras_events, keras_support, workload
from reference_trainers.support.events import EventWriter

NAME = "load_export"


def main():
    taken = ("audit-input", "order", "dump-weights", "devices", "model")
    taken += ("optimizer", "learning-rate")
    parser = workload.parser(NAME, __doc__, taken, epochs=2, steps_per_epoch=20)
    parser.add_argument("--export", required=True, metavar="PATH", help="path of the `exported`")
    parser.add_argument("--checkpoint", default="", metavar="PATH", help="weights to load as well")
    parser.add_argument("--may-refuse", action="store_true", help="another version exported it")
    args = parser.parse_args()
    events = EventWriter()
    data = workload.load_data(args.data)
    devices = keras_support.logical_devices(args.devices)
    try:
        model = tf.keras.models.load_model(args.export)
    except Exception as error:  # of any kind: it is from what this Keras does not know
        if not args.may_refuse:
            raise
        events.write("unsupported", reason=workload.reason(error))
        sys.exit(workload.UNSUPPORTED)
    step = keras_support.iterations(model)

    def evaluate(loaded, how):
        test, steps = keras_support.test_dataset(data, args.batch_size * args.devices)
        metrics = loaded.evaluate(test, steps=steps, return_dict=True, verbose=0)
        events.write("evaluated", global_step=step, metrics=metrics, how=how)

    evaluate(model, "export")
    if args.devices > 1:
        with tf.distribute.MirroredStrategy(devices).scope():
            evaluate(tf.keras.models.load_model(args.export), "export in scope")
    if args.checkpoint:
        fresh = keras_support.build_and_compile_cnn_model(args)
        fresh.load_weights(args.checkpoint)
        evaluate(fresh, "checkpoint")

    reporter = keras_events.EventsCallback(
        events, args, keras_events.BatchProbe(model, args.audit_input)
    )
    model.fit(
        keras_support.training_dataset(data, args, args.batch_size),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=[reporter],
        verbose=2,
    )
    step = keras_support.iterations(model)
    events.write("finished", global_step=step, steps=reporter.steps)


if __name__ == "__main__":
    workload.run(main, NAME)
