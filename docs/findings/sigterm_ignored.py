"""Observe whether SIGTERM ends a worker of MultiWorkerMirroredStrategy.

Two workers make steps with an all-reduce. Neither installs a handler. Worker 1 gets SIGTERM early.
With --workaround they reset the signal to its default after they have made the strategy.

Exit code: 1 if worker 1 makes all its steps, 0 if SIGTERM ends it, 125 if neither is established.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from subprocess import DEVNULL, PIPE, Popen

STEPS, STEP_S, SIGTERM_AT, LIMIT_S = 60, 0.05, 10, 300


def task():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if "--workaround" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    context = tf.distribute.get_replica_context
    step = tf.function(lambda: strategy.run(lambda: context().all_reduce("SUM", tf.ones([]))))
    for i in range(1, STEPS + 1):
        step()
        time.sleep(STEP_S)
        print("step %d (TensorFlow %s)" % (i, tf.__version__), flush=True)
    return 0


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


def start(stack, cluster, index):
    role = {"cluster": cluster, "task": {"type": "worker", "index": index}}
    env = dict(os.environ, TF_CONFIG=json.dumps(role), TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, __file__, "task"] + sys.argv[1:]
    process = Popen(command, env=env, text=True, stdout=PIPE, stderr=DEVNULL)
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    cluster = {"worker": [free_address(), free_address()]}
    with contextlib.ExitStack() as stack:
        worker = [start(stack, cluster, i) for i in range(2)][1]
        last = ""
        for last in worker.stdout:
            if last.startswith("step %d " % SIGTERM_AT):
                worker.send_signal(signal.SIGTERM)
        code = worker.wait()
    if not last.startswith("step ") or int(last.split()[1]) < SIGTERM_AT:
        raise RuntimeError("exit code %d: %s" % (code, last.split("cannot tell: ")[-1].strip()))
    print("expected: SIGTERM after step %d ends worker 1, exit code -15" % SIGTERM_AT)
    print("observed: its last is %s of %d, exit code %d" % (last.strip(), STEPS, code))
    return {0: 1, -signal.SIGTERM: 0}.get(code, 125)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    sys.exit(code if code in (0, 1) else 125)
