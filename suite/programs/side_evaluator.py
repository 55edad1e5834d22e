"""Follow and evaluate the checkpoints of a model directory, next to the cluster that trains.

For mwms/side-evaluator: a separate task, without a strategy. It ends with exit code 0 after a
checkpoint at --until-step or beyond, and with 1 if no new one arrives for --timeout seconds. With
--sidecar Keras' own SidecarEvaluator follows the checkpoints, without a time limit.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import keras_checkpoints, keras_support, workload
from reference_trainers.support.events import EventWriter

NAME = "side_evaluator"


def main():
    parser = workload.parser(NAME, __doc__, ("model", "optimizer", "learning-rate"))
    parser.add_argument("--until-step", type=workload.number(int, 1), default=1, metavar="N")
    parser.add_argument("--sidecar", action="store_true")
    parser.add_argument("--timeout", type=workload.number(float, 0), default=60, metavar="S")
    args = parser.parse_args()
    events = EventWriter("evaluator/0")
    data = workload.load_data(args.data)
    model = keras_support.build_and_compile_cnn_model(args)
    # A compiled model includes its optimizer. A custom loop saves the optimizer next to the model.
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    test, steps = keras_support.test_dataset(data, args.batch_size)
    directory = os.path.join(args.model_dir, "ckpt")
    if args.sidecar:
        return follow(args, events, model, test, steps, directory)
    for path in tf.train.checkpoints_iterator(directory, timeout=args.timeout):
        reader = keras_checkpoints.checked(path, model)
        status, seconds = workload.timed(checkpoint.restore, path)
        status.assert_existing_objects_matched()
        state = keras_support.state(model)
        counter = "updates" + keras_checkpoints.VALUE  # of a loop that counts by itself
        step = state["iterations"]
        if reader.has_tensor(counter):
            step = int(reader.get_tensor(counter))
        events.write("restored", path=path, global_step=step, seconds=seconds, **state)
        metrics = model.evaluate(test, steps=steps, return_dict=True, verbose=0)
        events.write("evaluated", global_step=step, metrics=metrics)
        if step >= args.until_step:
            return None
    return sys.exit(
        "%s: no checkpoint at step %d came within the time-out" % (NAME, args.until_step)
    )


class EventReporter(tf.keras.callbacks.Callback):
    """Report each evaluation, and end the evaluator after the awaited one."""

    def __init__(self, events, until_step):
        super().__init__()
        self.events, self.until_step = events, until_step

    def on_test_end(self, logs=None):
        state = keras_support.state(self.model)
        step = state["iterations"]
        self.events.write("restored", path="", global_step=step, seconds=None, **state)
        self.events.write("evaluated", global_step=step, metrics=dict(logs or {}))
        if step >= self.until_step:
            sys.exit(0)  # otherwise it continues for a fixed number of evaluations


def follow(args, events, model, test, steps, directory):
    """Run Keras' evaluator on the directory.

    If Keras has none, write `unsupported` and end with exit code 77.
    """
    evaluator = getattr(tf.keras.utils, "SidecarEvaluator", None)
    if evaluator is None:
        reason = "Keras %s has no SidecarEvaluator" % tf.keras.__version__
        events.write("unsupported", reason=reason)
        sys.exit(workload.UNSUPPORTED)
    reporter = EventReporter(events, args.until_step)
    evaluator(
        model, data=test, checkpoint_dir=directory, steps=steps, max_evaluations=None,
        callbacks=[reporter],
    ).start()  # fmt: skip


if __name__ == "__main__":
    workload.run(main, NAME)
