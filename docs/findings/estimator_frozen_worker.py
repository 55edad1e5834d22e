"""Observe whether an Estimator's worker gets an error while its peer is stopped for 25 s.

With --workaround each of its steps has 10 s (signal.alarm). Needs TensorFlow 2.15 or older.
Exit code: 1 if worker 0 still waits after 25 s, 0 if it has ended by then, 125 otherwise.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from subprocess import DEVNULL, Popen

STOPPED_S, LIMIT_S = 25, 300


def task():
    import tensorflow as tf

    tf1, steps, stopped = tf.compat.v1, [], int(os.environ.get("STOPPED", "0"))
    tf1.disable_eager_execution()  # as the tutorial does

    class Steps(tf1.train.SessionRunHook):
        def after_run(self, *_):
            steps.append(len(steps))
            signal.alarm(10 if "--workaround" in sys.argv and stopped else LIMIT_S)
            if len(steps) == 10 and stopped:
                os.kill(stopped, signal.SIGSTOP)
                threading.Timer(STOPPED_S, lambda: os._exit(1 if len(steps) < 13 else 125)).start()

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": tf.ones([4])}, tf.ones([4]))).repeat()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    config = tf.estimator.RunConfig(train_distribute=strategy, model_dir=os.environ["DIR"])
    train = tf.estimator.TrainSpec(input_fn, hooks=[Steps()])
    model = tf1.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], config=config)
    with contextlib.suppress(tf.errors.UnavailableError):
        tf.estimator.train_and_evaluate(model, train, tf.estimator.EvalSpec(input_fn))
    return 0 if len(steps) >= 10 else 125


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
        os.environ["STOPPED"] = str(start(stack, cluster, 1).pid)
        code = start(stack, cluster, 0).wait(LIMIT_S)
    observed = {1: "waits", 0: "ends with an error", -signal.SIGALRM: "ends by its own alarm"}
    if code in observed:
        print("expected: worker 0 ends within 25 s\nobserved: worker 0", observed[code])
    return {1: 1, 0: 0, -signal.SIGALRM: 0}.get(code, 125)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(2 * LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    sys.exit(code if code in (0, 1) else 125)
