"""Follows the checkpoints of a model directory and evaluates each, beside the cluster that trains.

For mwms/side-evaluator: a task of its own, without a strategy. It ends with exit code 0 after the
checkpoint at --until-step or beyond, with 1 when no new one comes for --timeout seconds.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers import keras_checkpoints, keras_support, workload
from reference_trainers.events import EventWriter

NAME = "side_evaluator"


def main():
    parser = workload.parser(NAME, __doc__, ("optimizer", "learning-rate"))
    parser.add_argument("--until-step", type=workload.number(int, 1), default=1, metavar="N")
    parser.add_argument("--timeout", type=workload.number(float, 0), default=60, metavar="S")
    args = parser.parse_args()
    events = EventWriter("evaluator/0")
    data = workload.load_data(args.data)
    model = keras_support.build_and_compile_cnn_model(args)
    # A compiled model brings its optimizer; a loop of one's own saves it beside the model.
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    test, steps = keras_support.test_dataset(data, args.batch_size)
    directory = os.path.join(args.model_dir, "ckpt")
    for path in tf.train.checkpoints_iterator(directory, timeout=args.timeout):
        reader = keras_checkpoints.checked(path, model)
        checkpoint.restore(path).assert_existing_objects_matched()
        state = keras_support.state(model)
        counter = "updates" + keras_checkpoints.VALUE  # of a loop that counts by itself
        step = state["iterations"]
        if reader.has_tensor(counter):
            step = int(reader.get_tensor(counter))
        events.write("restored", path=path, global_step=step, **state)
        metrics = model.evaluate(test, steps=steps, return_dict=True, verbose=0)
        events.write("evaluated", global_step=step, metrics=metrics)
        if step >= args.until_step:
            return
    sys.exit("%s: no checkpoint at step %d came within the time-out" % (NAME, args.until_step))


if __name__ == "__main__":
    workload.run(main, NAME)
