"""Load a SavedModel and evaluate it by its signature, with ordinary tensors.

For dtensor/saved-model: this process has no mesh, and the variables must have no layout. For
versions/saved-model: no class of Keras is needed.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "load_signature"
BATCH = 256


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--data", required=True, metavar="NPZ")
    parser.add_argument("--export", required=True, metavar="PATH", help="path of the `exported`")
    args = parser.parse_args()
    events = EventWriter()
    data = workload.load_data(args.data)
    loaded = tf.saved_model.load(args.export)
    weights = getattr(loaded, "weights", None) or loaded.variables
    left = [v.name for v in weights if getattr(v, "layout", None) is not None]
    if left:
        raise RuntimeError("variables that still have a layout: %s" % left)
    serve = loaded.signatures["serving_default"]
    ((name, spec),) = serve.structured_input_signature[1].items()
    losses, right = 0.0, 0
    for first in range(0, len(data.x_test), BATCH):
        images = data.x_test[first : first + BATCH].astype(np.float32) / 255
        labels = data.y_test[first : first + BATCH]
        images = images.reshape([-1, *spec.shape[1:]])
        (logits,) = serve(**{name: tf.constant(images)}).values()
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        losses += float(tf.reduce_sum(each))
        right += int(np.sum(np.argmax(logits.numpy(), axis=1) == labels))
    n = len(data.x_test)
    metrics = {"loss": losses / n, "accuracy": right / n}
    events.write("evaluated", global_step=0, metrics=metrics, how="export")
    events.write("finished", global_step=0, steps=0)


if __name__ == "__main__":
    workload.run(main, NAME)
