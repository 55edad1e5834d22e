"""Load a model that a trainer has exported, and save it as a file of Keras and as a SavedModel.

For versions/keras-file and versions/saved-model: other versions load both. One `exported` each.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import digests, keras_support, workload
from reference_trainers.support.events import EventWriter

NAME = "save_formats"


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--export", required=True, metavar="PATH", help="path of the `exported`")
    parser.add_argument("--keras-file", required=True, metavar="PATH", help="ends in .keras")
    parser.add_argument("--saved-model", required=True, metavar="DIR")
    args = parser.parse_args()
    events = EventWriter()
    model = tf.keras.models.load_model(args.export)
    step = keras_support.iterations(model)
    known = {"global_step": step, "digest": digests.digest(model.get_weights()), "kept": True}
    model.save(args.keras_file)
    events.write("exported", path=args.keras_file, **known)
    if keras_support.is_keras_3():
        model.export(args.saved_model)
    else:
        model.save(args.saved_model, save_format="tf")
    events.write("exported", path=args.saved_model, **known)
    events.write("finished", global_step=step, steps=0)


if __name__ == "__main__":
    workload.run(main, NAME)
