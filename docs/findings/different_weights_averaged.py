"""Observe what happens if only one of two restarted workers finds a checkpoint.

Only worker 0's folder has one. Both workers restore what they find and make two steps of gradient
descent. With --workaround both take worker 0's weight before, by an all-reduce.
Exit code: 1 if their weights differ and no error says so, 0 if they agree, 125 otherwise.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from subprocess import DEVNULL, Popen

LIMIT_S = 300


def task():
    import tensorflow as tf

    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    path = os.path.join(os.environ["DISKS"], "worker-%d" % index)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(1.0)
    if index == 0:  # as the run before did
        tf.train.Checkpoint(weight=tf.Variable(5.0)).write(path)
    if os.path.exists(path + ".index"):
        tf.train.Checkpoint(weight=weight).read(path).assert_consumed()

    def replica():
        context = tf.distribute.get_replica_context()
        if "--workaround" in sys.argv:
            weight.assign(context.all_reduce("SUM", weight * float(index == 0)))
        for _ in range(2):
            gradient = context.all_reduce("MEAN", 2 * weight)  # of the weight's square
            weight.assign_sub(0.125 * gradient)
        return context.all_gather(tf.reshape(weight, [1]), axis=0)

    weights = tf.function(lambda: strategy.run(replica))().numpy().tolist()
    print("expected: both workers hold the same weight, or an error says that they do not")
    print("observed: they hold %s, and no error comes (TensorFlow %s)" % (weights, tf.__version__))
    return 0 if weights[0] == weights[1] else 1


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
        os.environ["DISKS"] = stack.enter_context(tempfile.TemporaryDirectory())
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
