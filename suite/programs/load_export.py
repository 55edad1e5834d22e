"""Loads a model that a cluster has exported, in one process without a strategy, and goes on.

For mwms/saved-model-same: `evaluated` must equal what the cluster measured, and training goes on
from there as the document shows, 2 epochs x 20 steps by default (`step` and `epoch` events).
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers import keras_events, keras_support, workload
from reference_trainers.events import EventWriter

NAME = "load_export"


def main():
    parser = workload.parser(
        NAME, __doc__, ("audit-input", "order", "dump-weights"), epochs=2, steps_per_epoch=20
    )
    parser.add_argument("--export", required=True, metavar="PATH", help="path of the `exported`")
    args = parser.parse_args()
    events = EventWriter()
    data = workload.load_data(args.data)
    model = tf.keras.models.load_model(args.export)
    test, steps = keras_support.test_dataset(data, args.batch_size)
    metrics = model.evaluate(test, steps=steps, return_dict=True, verbose=0)
    step = int(model.optimizer.iterations.numpy())
    events.write("evaluated", global_step=step, metrics=metrics)

    teller = keras_events.EventsCallback(
        events, args, keras_events.BatchProbe(model, args.audit_input)
    )
    model.fit(
        keras_support.training_dataset(data, args, args.batch_size),
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        callbacks=[teller],
        verbose=2,
    )
    step = int(model.optimizer.iterations.numpy())
    events.write("finished", global_step=step, steps=teller.steps)


if __name__ == "__main__":
    workload.run(main, NAME)
