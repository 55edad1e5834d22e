"""Observe whether an Estimator trains on two workers with eager execution left on.

With --workaround it is turned off, as in the tutorial. Needs TensorFlow 2.15 or older.
Exit code: 1 if it trains with eager execution, 0 if not, 125 if neither could be established.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from subprocess import DEVNULL, Popen

STEPS, LIMIT_S = 5, 300


def task():
    import tensorflow as tf

    tf1 = tf.compat.v1
    if "--workaround" in sys.argv:
        tf1.disable_eager_execution()
    eager = tf.executing_eagerly()

    def model_fn(features, labels, mode):
        loss = tf.reduce_mean(tf.square(tf1.get_variable("weight", []) * features - labels))
        optimizer, step = tf1.train.GradientDescentOptimizer(0.01), tf1.train.get_global_step()
        train_op = optimizer.minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors((tf.ones([4]), tf.ones([4]))).repeat()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    config = tf.estimator.RunConfig(train_distribute=strategy, model_dir=os.environ["DIR"])
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(input_fn, max_steps=STEPS),
        tf.estimator.EvalSpec(input_fn, steps=1),
    )
    print("expected: with eager execution the Estimator fails to copy its strategy")
    print("observed: it trains, with eager execution %s (TensorFlow %s)" % (eager, tf.__version__))
    return 1 if eager else 0


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


def start(stack, cluster, index):
    role = {"cluster": cluster, "task": {"type": "worker", "index": index}}
    env = dict(os.environ, TF_CONFIG=json.dumps(role), TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, __file__, "task"] + sys.argv[1:]
    process = stack.enter_context(Popen(command, env=env, stdout=DEVNULL if index else None))
    stack.callback(process.kill)
    return process


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = {"worker": [free_address(), free_address()]}
    with contextlib.ExitStack() as stack:
        os.environ["DIR"] = stack.enter_context(tempfile.TemporaryDirectory())
        first, _ = [start(stack, cluster, i) for i in range(2)]
        return first.wait(LIMIT_S)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(2 * LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    if code < 0:
        print("cannot tell: the reporting task was ended by signal %d" % -code)
    sys.exit(code if code in (0, 1) else 125)
