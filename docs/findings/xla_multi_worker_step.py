"""Observe whether XLA compiles a step over two workers of MultiWorkerMirroredStrategy on CPUs.

The same step runs without XLA first. With --workaround XLA compiles what each worker computes, and
the all-reduce stays outside.

Exit code: 1 if it does not compile, 0 if both give the same, 125 if neither could be established.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from subprocess import DEVNULL, Popen

LIMIT_S = 300


def task():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def step(whole, each):
        square = tf.function(lambda: tf.square(tf.constant(3.0)), jit_compile=each or None)
        context = tf.distribute.get_replica_context
        both = tf.function(lambda: strategy.run(lambda: context().all_reduce("SUM", square())))
        return float(tf.function(both, jit_compile=whole or None)().numpy())

    expected, refused, workaround = step(False, False), "", "--workaround" in sys.argv
    try:
        got = step(not workaround, workaround)
    except tf.errors.UnimplementedError as error:
        got = refused = "UnimplementedError: " + str(error).split(".")[0]
    if got != (refused if "Collectives are not yet" in refused else expected):
        raise RuntimeError("with XLA %s, without %s" % (got, expected))
    print("expected: XLA compiles the step, and the all-reduce of 9 and 9 is %s" % expected)
    print("observed: %s (TensorFlow %s)" % (got, tf.__version__), flush=True)
    return 1 if refused else 0


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


def start(stack, cluster, index):
    role = {"cluster": cluster, "task": {"type": "worker", "index": index}}
    env = dict(os.environ, TF_CONFIG=json.dumps(role), TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, __file__, "task"] + sys.argv[1:]
    output = DEVNULL if index else None  # worker 0 reports
    process = Popen(command, env=env, stdout=output, stderr=DEVNULL)
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    cluster = {"worker": [free_address(), free_address()]}
    with contextlib.ExitStack() as stack:
        first, _ = [start(stack, cluster, i) for i in range(2)]
        return first.wait(LIMIT_S)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    if code < 0:
        print("cannot tell: the reporting task was ended by signal %d" % -code)
    sys.exit(code if code in (0, 1) else 125)
